"""Short answers, scored as SQuAD scores them."""

import pytest

from agentfly_core.authoring.reward import Reward
from agentfly_core.records.trajectory import Problem, Score, ToolCall, Unscored
from agentfly_core.rewards.qa import normalised, qa_em, qa_f1
from agentfly_core.testing.episodes import play
from agentfly_core.tools.answer import answer

RIGHT = "The Quiet Harbour"
PROMPT = "Which book did Anna Berg write, The Quiet Harbour or The Open Road?"


async def scored(reward: Reward, text: str, right: object = RIGHT) -> float:
    problem = Problem("book", PROMPT, {"answer": right})
    trajectory = await play([ToolCall("answer", {"answer": text})], answer, problem=problem)
    score = await reward.score(trajectory, {})
    assert isinstance(score, Score), score
    return score.value


def test_case_articles_punctuation_and_spaces_are_ignored() -> None:
    assert normalised("  The Quiet,  HARBOUR! ") == "quiet harbour"
    assert normalised("An A. the theatre") == "theatre"
    assert normalised("U.S.A. in 1,931") == "usa in 1931"


@pytest.mark.parametrize(
    ("text", "em", "f1"),
    [
        ("The Quiet Harbour", 1.0, 1.0),
        ("quiet harbour.", 1.0, 1.0),
        ("quiet", 0.0, 2 / 3),
        ("the quiet road", 0.0, 0.5),
        ("harbour quiet", 0.0, 1.0),
        ("the open road", 0.0, 0.0),
    ],
)
async def test_right_partial_and_wrong_answers_are_scored(text: str, em: float, f1: float) -> None:
    assert await scored(qa_em, text) == em
    assert await scored(qa_f1, text) == pytest.approx(f1)


ENUMERATED = "the open road, quiet harbour, tall tower, misty river, silver window"
ATTACKS = {
    "": 0.0,
    " ": 0.0,
    "the . !": 0.0,
    PROMPT: 2 * 2 / (2 + 11),
    ENUMERATED: 2 * 2 / (2 + 10),
    "quiet quiet quiet harbour harbour harbour": 2 * 2 / (2 + 6),
    "nan nan": 0.0,
    "qui\u0435t h\u0430rbour": 0.0,
    "quiet\u200b harbour\u200b": 0.0,
    f"{'word ' * 9}the quiet harbour{' word' * 9}": 2 * 2 / (2 + 20),
}


@pytest.mark.parametrize(("text", "f1"), ATTACKS.items(), ids=range(len(ATTACKS)))
async def test_no_trick_earns_more_than_its_words(text: str, f1: float) -> None:
    assert await scored(qa_em, text) == 0.0
    assert await scored(qa_f1, text) == pytest.approx(f1)


async def test_several_answers_never_earn_more_than_the_right_one() -> None:
    answers, earned = RIGHT, []
    for other in ("open road", "tall tower", "misty river"):
        earned.append(await scored(qa_f1, answers))
        answers += f", {other}"
    assert earned == sorted(earned, reverse=True) and earned[1] < 1.0


async def test_the_best_of_several_right_answers_counts() -> None:
    several = ["The Quiet Harbour", "Quiet Harbour: a novel"]
    assert await scored(qa_em, "quiet harbour a novel", several) == 1.0
    assert await scored(qa_f1, "quiet harbour novel of", several) == pytest.approx(6 / 7)
    assert await scored(qa_em, "quiet harbour", 1931) == 0.0


@pytest.mark.parametrize(
    ("text", "f1"), [("Yes.", 1.0), ("no", 0.0), ("yes no", 0.0), ("yes or no", 0.0)]
)
async def test_yes_is_the_whole_answer_or_wrong(text: str, f1: float) -> None:
    assert await scored(qa_f1, text, "yes") == f1


@pytest.mark.parametrize("reward", [qa_em, qa_f1])
async def test_an_episode_without_an_answer_earns_nothing(reward: Reward) -> None:
    problem = Problem("book", PROMPT, {"answer": "The"})
    trajectory = await play(["<answer", "<answer"], answer, problem=problem)
    assert await reward.score(trajectory, {}) == Score(0.0)


@pytest.mark.parametrize(
    ("right", "same", "other"),
    [("A", "a.", "An"), ("The", "the", "A"), ("-", " - ", "+"), ("The A", "the a", "the")],
)
async def test_articles_or_punctuation_alone_can_be_right(
    right: str, same: str, other: str
) -> None:
    for reward in (qa_em, qa_f1):
        assert await scored(reward, same, right) == 1.0
        assert await scored(reward, other, right) < 1.0


@pytest.mark.parametrize(("right", "wrong"), [("1.5", "15"), ("-5", "5"), (".5", "5"), (1.5, "15")])
async def test_a_number_keeps_its_sign_and_its_point(right: object, wrong: str) -> None:
    for reward in (qa_em, qa_f1):
        assert await scored(reward, str(right).replace("-", "\u2212"), right) == 1.0
        assert await scored(reward, wrong, right) == 0.0


@pytest.mark.parametrize("reward", [qa_em, qa_f1])
async def test_a_problem_without_a_right_answer_is_unscored(reward: Reward) -> None:
    trajectory = await play(["Lyon"], answer, problem=Problem("p", "?"))
    assert isinstance(await reward.score(trajectory, {}), Unscored)
    trajectory = await play(["Lyon"], answer, problem=Problem("p", "?", {"answer": []}))
    assert isinstance(await reward.score(trajectory, {}), Unscored)
