"""The agent that runs the Python block of each reply."""

from typing import Any

import pytest

from agentfly_core import tool
from agentfly_core.agents.code_block import STOP, code_block
from agentfly_core.authoring.tool import Tool
from agentfly_core.records.trajectory import Ending, Trajectory
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.testing.episodes import play, rollout_spec
from agentfly_core.testing.letters import as_letters, loss_mask
from agentfly_core.tools.calculator import calculator


@tool(name="python")
async def echo(code: str) -> str:
    """Say the program again.

    Args:
        code: the program
    """
    return f"ran {code!r}"


async def played(*replies: str, by: Tool = echo, **rules: Any) -> Trajectory:
    return await play(replies, spec=rollout_spec(by, agent=code_block, stop=(STOP,), **rules))


@pytest.mark.parametrize("fence", ["```python", "```py", "```python "])
async def test_the_block_of_a_reply_is_run(fence: str) -> None:
    trajectory = await played(f"I add.\n{fence}\nx = 4\nprint(x)\n```\n", "It is 4.\n\n 4 \n")
    (observation,) = trajectory.observations
    assert observation.content == r"ran 'x = 4\nprint(x)'"
    assert (trajectory.answer, trajectory.ending) == ("4", Ending.NO_TOOL_CALLS)


@pytest.mark.parametrize("end", ["", "\n", "\n```", "\n```."])
async def test_a_block_closed_by_the_end_of_the_reply_is_run(end: str) -> None:
    trajectory = await played(f"```python\nprint(4){end}", "4")
    assert [one.content.rstrip(r"\n'") for one in trajectory.observations] == ["ran 'print(4)"]


async def test_text_after_the_block_is_neither_read_nor_trained() -> None:
    trajectory = await played("```python\nprint(4)\n```\n5\n", "4")
    reply = "```python\nprint(4)\n```\n"
    assert as_letters(trajectory) == f"^u41+58?$^a{reply}$^tran 'print(4)'$^a4$"
    assert loss_mask(trajectory)[11 : 11 + len(reply)] == "x" * len(reply)
    assert loss_mask(trajectory)[11 + len(reply) :] == "." * 20 + "xx"


async def test_an_experiment_without_the_tool_is_refused() -> None:
    with pytest.raises((EpisodeBroken, ValueError), match="tool named python"):
        await played("4", by=calculator)


async def test_the_last_line_of_a_cut_reply_is_no_answer() -> None:
    cut = await played("It is\n123", max_tokens=len("It is\n12"))
    assert (cut.answer, cut.ending) == (None, Ending.NO_TOOL_CALLS)
