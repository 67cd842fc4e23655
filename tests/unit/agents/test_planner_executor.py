"""The two agents of which one plans and the other carries out."""

from __future__ import annotations

import pytest

from agentfly_core.agents.planner_executor import PlannerExecutor
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Ending, Problem, Score, ToolCall, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import as_letters, call_text, loss_mask
from agentfly_core.tools.calculator import calculator

SUM = Problem("sum", "17 times 5, and 12 more?", {"answer": "97"})


def asked(expression: str) -> str:
    return call_text(ToolCall("calculator", {"expression": expression}))


SAID = {
    "planner": ["Multiply 17 by 5.", "Add 85 and 12.", "Answer: 97"],
    "executor": [
        asked("17*5"),
        "85",
        asked("85+12"),
        "97",
    ],
}


def speaking(said: dict[str, list[str]]):
    """The policy whose speakers say these replies, each its own in their order."""
    left = {speaker: iter(replies) for speaker, replies in said.items()}

    async def policy(conversation: Conversation) -> str:
        return next(left[conversation.speaker])

    return policy


async def played(
    said: dict[str, list[str]], max_turns: int = 4, max_tokens: int = 100
) -> dict[str, Trajectory]:
    """The trajectories by who spoke, the one that answered first."""
    agent = PlannerExecutor("Plan.", "Work.")
    spec = rollout_spec(calculator, agent=agent, max_turns=max_turns, max_tokens=max_tokens)
    found, *_ = await play_all(episode_specs(SUM), spec, scripted(speaking(said)))
    return {one.agent: one for one in found if one.turns}


async def test_the_executor_reads_a_step_alone_and_the_planner_what_came_of_it() -> None:
    found = await played(SAID)
    assert as_letters(found["planner"]) == (
        "^sPlan.$^u17 times 5, and 12 more?$^aMultiply 17 by 5.$"
        "^u85$^aAdd 85 and 12.$^u97$^aAnswer: 97$"
    )
    calls = SAID["executor"][::2]
    assert as_letters(found["executor"]) == (
        f"^sWork.$^uMultiply 17 by 5.$^a{calls[0]}$^t85$^a85$"
        f"^sWork.$^uAdd 85 and 12.$^a{calls[1]}$^t97$^a97$"
    )
    assert [turn.context for turn in found["executor"].turns] == [0, 0, 1, 1]
    assert "x" in loss_mask(found["executor"]) and "x" in loss_mask(found["planner"])


async def test_the_answer_is_the_planners() -> None:
    found = await played(SAID)
    assert [one.agent for one in found.values() if one.answered] == ["planner"]
    assert (found["planner"].answer, found["planner"].ending) == ("97", Ending.NO_TOOL_CALLS)
    assert await exact.score(found["planner"], {}) == Score(1.0)


@pytest.mark.parametrize("talker", ["planner", "executor"])
async def test_each_of_them_has_so_many_turns(talker: str) -> None:
    endless = {"planner": ["Go on."] * 9, "executor": ["85"] * 9}
    if talker == "executor":
        endless["executor"] = [asked("1+1")] * 9
    found = await played(endless)
    assert len(found[talker].turns) == 4
    assert found[talker].ending is Ending.MAX_TURNS


async def test_an_answer_of_the_planner_that_was_cut_is_none() -> None:
    found = await played({"planner": ["Answer: 123"]}, max_tokens=len("Answer: 12"))
    assert (found["planner"].answered, found["planner"].ending) == (None, Ending.NO_TOOL_CALLS)
