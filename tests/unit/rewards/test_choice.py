"""One of several options, named in a sentence."""

from __future__ import annotations

import pytest

from agentfly_core.records.trajectory import Problem, Score, ToolCall
from agentfly_core.rewards.choice import choice
from agentfly_core.testing.episodes import play
from agentfly_core.tools.answer import answer

PROMPT = "Which of these is an animal: saw, France or horse?"
FACTS = {"answer": "horse", "options": ["saw", "France", "horse"]}
SAID = {
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


@pytest.mark.parametrize(("said", "value"), SAID.items(), ids=range(len(SAID)))
async def test_the_right_option_and_no_other_has_to_be_named(said: str, value: float) -> None:
    problem = Problem("animal-saw-France-horse", PROMPT, FACTS)
    trajectory = await play([ToolCall("answer", {"answer": said})], answer, problem=problem)
    assert await choice.score(trajectory, {}) == Score(value)


async def test_an_option_may_be_of_several_words_and_signs() -> None:
    problem = Problem("c", "Which?", {"answer": "C++ (2023)", "options": ["C", "C++ (2023)"]})
    trajectory = await play([ToolCall("answer", {"answer": "C"})], answer, problem=problem)
    assert await choice.score(trajectory, {}) == Score(0.0)
