"""Actions, programs and answers inside of `<think>` are ignored."""

from collections.abc import Sequence

import pytest

from agentfly_core import tool
from agentfly_core.agents.code_block import code_block
from agentfly_core.agents.planner_executor import PlannerExecutor
from agentfly_core.agents.react import React
from agentfly_core.records.trajectory import Message, Trajectory
from agentfly_core.rollout.episode import Agent
from agentfly_core.system.formats.text import before_stop, without_thoughts
from agentfly_core.testing.episodes import play, rollout_spec
from agentfly_core.testing.letters import Letters, decode

ACTION = "Action: python\nAction Input: {}\n"
BLOCK = "\n```python\nprint({})\n``` \n"


class Text(Letters):
    """Letters without calls, in which `<` is a letter."""

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        return Message("assistant", before_stop(decode(reply).removesuffix("$"), stop))


@tool
async def python(code: str) -> str:
    """Say the program again.

    Args:
        code: the program
    """
    return code.strip()


async def played(agent: Agent, *replies: str) -> Trajectory:
    spec = rollout_spec(python, agent=agent, template=Text(), max_tokens=200, stop=STOP)
    return await play(replies, spec=spec)


STOP = ("Observation:", "\n```\n")


async def test_react_ignores_actions_in_thoughts() -> None:
    thought = f"<think>{ACTION.format('1')}Final Answer: 1</think>"
    trajectory = await played(
        React(False),
        f"{thought}{ACTION.format('2')}Observation:",
        f"{thought}Final Answer: 3",
    )
    assert [answer.content for answer in trajectory.observations] == ["2"]
    assert trajectory.answer == "3"


async def test_a_program_inside_a_thought_is_not_run() -> None:
    thought = f"<think>{BLOCK.format(1)}</think>"
    trajectory = await played(code_block, f"{thought}{BLOCK.format(2)}", f"{thought}3")
    assert [answer.content for answer in trajectory.observations] == ["print(2)"]
    assert trajectory.answer == "3"


async def test_a_planner_answers_outside_of_its_thoughts() -> None:
    trajectory = await played(
        PlannerExecutor(), "<think>Answer: 1</think>Add.", "<think>hm</think>2", "Answer: 3"
    )
    assert trajectory.answer == "3"


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>a</think>b<think>c</think>d", "bd"),
        ("\n<think>never closed", ""),
        ("a <think> b", "a <think> b"),
        ("a</think>b", "a</think>b"),
    ],
)
def test_only_closed_and_leading_thoughts_are_removed(text: str, rest: str) -> None:
    assert without_thoughts(text) == rest
