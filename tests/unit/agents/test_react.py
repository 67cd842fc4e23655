"""The ReAct agent: thought, action and observation as plain text."""

from typing import Any

import pytest

from agentfly_core import tool
from agentfly_core.agents.react import React, action, instructions
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    Score,
    ToolCall,
    Trajectory,
)
from agentfly_core.rewards.exact import exact
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.testing.episodes import play, rollout_spec
from agentfly_core.testing.letters import as_letters, loss_mask
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator

STOP = ("Observation:",)


@tool
async def place(row: int, column: int) -> str:
    """Place a stone.

    Args:
        row: from 0
        column: from 0
    """
    return f"{row}/{column}"


async def played(*replies: str, instructed: bool = False, **rules: Any) -> Trajectory:
    spec = rollout_spec(
        calculator, place, answer, agent=React(instructed), **{"stop": STOP, **rules}
    )
    return await play(replies, spec=spec)


def asks(name: str, written: str) -> str:
    return f"Thought: hm\nAction: {name}\nAction Input: {written}\nObservation:"


async def test_tools_are_called_by_text_until_the_answer() -> None:
    trajectory = await played(asks("calculator", "41+58"), "Final Answer: 99\n")
    assert (trajectory.answer, trajectory.ending) == ("99", Ending.NO_TOOL_CALLS)
    assert trajectory.observations == (Observation("calculator", "99"),)
    assert await exact.score(trajectory, {}) == Score(1.0)


async def test_text_after_the_stop_string_is_neither_read_nor_trained() -> None:
    made_up = asks("calculator", "1+1") + " 3\nFinal Answer: 3"
    trajectory = await played(made_up, "Final Answer: 2")
    reply = asks("calculator", "1+1")
    assert as_letters(trajectory) == f"^u41+58?$^a{reply}$^t2$^aFinal Answer: 2$"
    assert loss_mask(trajectory) == "." * 11 + "x" * len(reply) + "." * 7 + "x" * 16
    assert trajectory.answer == "2"


@pytest.mark.parametrize(
    ("name", "written", "call"),
    [
        ("calculator", "41+58", ToolCall("calculator", {"expression": "41+58"})),
        ("calculator", "99", ToolCall("calculator", {"expression": "99"})),
        ("calculator", '"41+58"', ToolCall("calculator", {"expression": "41+58"})),
        ("calculator", '{"expression": "1"}', ToolCall("calculator", {"expression": "1"})),
        ("calculator", "1 +\n 1", ToolCall("calculator", {"expression": "1 +\n 1"})),
        ("place", '{"row": 1, "column": 2}', ToolCall("place", {"row": 1, "column": 2})),
        ("calc", "41+58", ToolCall("calc", {})),
    ],
)
def test_the_input_is_a_json_object_or_the_text_argument(
    name: str, written: str, call: ToolCall
) -> None:
    reply = asks(name, written).removesuffix(STOP[0])
    assert action(reply, (calculator.schema, place.schema)) == call


@pytest.mark.parametrize(
    ("reply", "fault"),
    [
        ("I do not know.", "expected lines with 'Action:' and 'Action Input:'"),
        ("Action: calculator\n", "expected lines with 'Action:' and 'Action Input:'"),
        ("Action: place\nAction Input: 1, 2", "expected a JSON object as the input of place: "),
        ("Action: place\nAction Input: 7", "expected a JSON object as the input of place"),
    ],
)
async def test_an_unreadable_action_gets_an_error(reply: str, fault: str) -> None:
    parsed = action(reply, (calculator.schema, place.schema))
    assert isinstance(parsed, BadCall)
    assert parsed.fault.startswith(fault)
    trajectory = await played(reply, "Final Answer: 99")
    (observation,) = trajectory.observations
    assert observation.error
    assert fault in observation.content
    assert trajectory.answer == "99"


async def test_a_wrong_call_gets_an_error_of_its_tool() -> None:
    trajectory = await played(asks("calculater", "1"), asks("calculator", "1/0"), "Final Answer: ?")
    unknown, division = trajectory.observations
    assert (unknown.error, division.error) == (True, True)
    assert "Did you mean 'calculator'" in unknown.content
    assert division.content.endswith("Division by zero.")


async def test_a_tool_can_end_the_episode() -> None:
    trajectory = await played(asks("answer", "99"))
    assert (trajectory.answer, trajectory.ending) == ("99", Ending.TERMINAL)


async def test_the_system_message_describes_the_form_and_the_tools() -> None:
    trajectory = await played("Final Answer: 99", instructed=True, system="Be brief.")
    system, user = trajectory.turns[0].read
    form = instructions((calculator.schema, place.schema, answer.schema))
    assert system == Message("system", f"Be brief.\n\n{form}")
    assert user == Message("user", "41+58?")
    assert "calculator: Work out an arithmetic expression." in form
    assert "one of calculator, place, answer\n" in form
    assert '"row"' in form


async def test_an_experiment_without_the_stop_string_is_refused() -> None:
    with pytest.raises(
        (EpisodeBroken, ValueError), match=r"agent\.stop, which is \[\]. Add the missing"
    ):
        await played("Final Answer: 99", stop=())


async def test_a_cut_final_answer_is_ignored() -> None:
    whole = await played("Final Answer: 99", max_tokens=100)
    cut = await played("Final Answer: 99", max_tokens=len("Final Answer: 9"))
    assert (whole.answer, cut.answer, cut.ending) == ("99", None, Ending.NO_TOOL_CALLS)
