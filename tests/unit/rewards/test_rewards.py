from dataclasses import replace

import pytest

from agentfly_core.records.trajectory import (
    Message,
    Observation,
    Problem,
    Score,
    ToolCall,
    Trajectory,
    Unscored,
)
from agentfly_core.rewards.exact import exact
from agentfly_core.rewards.format import tool_format
from agentfly_core.testing import episodes
from agentfly_core.testing.episodes import ADD
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator


async def play(*replies: str, problem: Problem = ADD) -> Trajectory:
    return await episodes.play(replies, calculator, answer, problem=problem)


@pytest.mark.parametrize(
    ("replies", "value"),
    [
        (["99"], 1.0),
        ([" 99 "], 1.0),
        (["<answer answer=99>"], 1.0),
        (["<calculator expression=41+58>", "99"], 1.0),
        (["98"], 0.0),
        (["It is 99"], 0.0),
        ([""], 0.0),
        (["<calculator expression=41+58>", "<calculator expression=41+58>"], 0.0),
    ],
)
async def test_only_the_exact_answer_is_worth_one(replies: list[str], value: float) -> None:
    assert await exact.score(await play(*replies), {}) == Score(value)


async def test_the_right_answer_can_be_a_number() -> None:
    assert await exact.score(
        await play("99", problem=Problem("p", "?", {"answer": 99})), {}
    ) == Score(1.0)


async def test_a_problem_without_an_answer_is_unscored() -> None:
    result = await exact.score(await play("99", problem=Problem("p", "?")), {})
    assert isinstance(result, Unscored) and "facts['answer'] is null" in result.reason


@pytest.mark.parametrize(
    ("replies", "readable", "answered"),
    [
        (["<calculator expression=1><answer answer=1>"], 1.0, 1.0),
        (["<calculator expression=1><calculator", "1"], 0.5, 0.5),
        (["<nothing>", "<calculator expression=1>"], 1.0, 0.5),
        (["<calculator", "<calculator"], 0.0, 0.0),
        (["99"], 0.0, 0.0),
    ],
)
async def test_the_format_is_the_share_of_readable_calls(
    replies: list[str], readable: float, answered: float
) -> None:
    assert await tool_format.score(await play(*replies), {}) == Score(
        readable, {"answered": answered}
    )


async def test_observations_of_the_prompt_are_no_answers_of_tools() -> None:
    prompt = (Message("user", "41+58?"), Observation("calculator", "99"))
    trajectory = await play("<nothing>", "99", problem=replace(ADD, messages=prompt))
    assert await tool_format.score(trajectory, {}) == Score(1.0, {"answered": 0.0})


async def test_an_answer_is_longer_than_what_the_model_reads() -> None:
    text = "9" * 5000
    spec = episodes.rollout_spec(answer, max_tokens=6000, max_model_len=7000)
    call = ToolCall("answer", {"answer": text})
    trajectory = await episodes.play([call], spec=spec, problem=Problem("p", "?", {"answer": text}))
    assert await exact.score(trajectory, {}) == Score(1.0)
