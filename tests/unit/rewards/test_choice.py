"""One of several options, named in a sentence."""

import pytest

from agentfly_core.records.trajectory import Problem, Score, ToolCall, Unscored
from agentfly_core.rewards.choice import choice
from agentfly_core.testing.episodes import play
from agentfly_core.tools.answer import answer

PROMPT = "Which of these is an animal: saw, France or horse?"
FACTS = {"answer": "horse", "options": ["saw", "France", "horse"]}
TEXTS = {
    "horse": 1.0,
    "A Horse, of course.": 1.0,
    "The animal is the horse": 1.0,
    "horses": 0.0,
    "a horseshoe": 0.0,
    "saw": 0.0,
    "a dog": 0.0,
    "": 0.0,
    PROMPT: 0.0,
    "saw, France, horse": 0.0,
    "horse or saw": 0.0,
    "h\u043erse": 0.0,
    "nan": 0.0,
}


@pytest.mark.parametrize(("text", "value"), TEXTS.items(), ids=range(len(TEXTS)))
async def test_an_answer_must_name_the_right_option_only(text: str, value: float) -> None:
    problem = Problem("animal-saw-France-horse", PROMPT, FACTS)
    trajectory = await play([ToolCall("answer", {"answer": text})], answer, problem=problem)
    assert await choice.score(trajectory, {}) == Score(value)


async def scored(text: str, options: object, right: object) -> Score | Unscored:
    problem = Problem("c", "Which?", {"answer": right, "options": options})
    trajectory = await play([ToolCall("answer", {"answer": text})], answer, problem=problem)
    return await choice.score(trajectory, {})


async def test_an_option_can_have_several_words_and_signs() -> None:
    assert await scored("C", ["C", "C++ (2023)"], "C++ (2023)") == Score(0.0)


OVERLAPPING = [
    ["horse", "horse race", "race"],
    ["C", "C#", "C++", "Objective-C"],
    ["1", "1.5", "-1", "1/2", "15"],
    [1, 1.5, 2],
    ["A", "B", "C"],
    ["New York", "York", "New York City"],
]


@pytest.mark.parametrize("options", OVERLAPPING, ids=range(len(OVERLAPPING)))
async def test_overlapping_options_are_distinguished(options: list[str | float]) -> None:
    for right in options:
        for option in options:
            for text in (f"{option}", f"It is {option}."):
                assert await scored(text, options, right) == Score(float(option == right)), text


@pytest.mark.parametrize(
    ("text", "options"),
    [("-1", ["1", "2"]), ("1.5", ["1", "2"]), ("1/2", ["1", "3"]), ("C++", ["C", "Java"])],
)
async def test_a_part_of_a_number_or_name_is_no_option(text: str, options: list[str]) -> None:
    assert await scored(text, options, options[0]) == Score(0.0)


async def test_the_article_a_does_not_name_the_option_a() -> None:
    assert await scored("It is a tiger", ["A", "B"], "A") == Score(0.0)
    assert await scored("(a)", ["A", "B"], "A") == Score(1.0)


@pytest.mark.parametrize(
    ("options", "right", "reason"),
    [
        (["saw", "horse"], 1, "expected the text of one of the options"),
        (["saw", "horse"], "cow", "one of the options"),
        (["saw", "Saw ", "cow"], "cow", '["saw", "Saw ", "cow"], expected a list of different'),
        (["saw", ""], "saw", '["saw", ""], expected a list of different texts'),
        (["saw", None], "saw", '["saw", null], expected a list of different texts'),
        ("saw", "saw", "expected a list of different texts or numbers"),
    ],
)
async def test_options_without_one_right_answer_are_unscored(
    options: object, right: object, reason: str
) -> None:
    result = await scored("saw", options, right)
    assert isinstance(result, Unscored) and reason in result.reason
