"""The two agents of which one plans and the other carries out."""

import pytest

from agentfly_core.agents.planner_executor import PlannerExecutor
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Ending, Problem, Score, ToolCall, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import as_letters, call_text, loss_mask
from agentfly_core.tools.calculator import calculator

SUM = Problem("sum", "17 times 5, and 12 more?", {"answer": "97"})


def calculation(expression: str) -> str:
    return call_text(ToolCall("calculator", {"expression": expression}))


REPLIES = {
    "planner": ["Multiply 17 by 5.", "Add 85 and 12.", "Answer: 97"],
    "executor": [
        calculation("17*5"),
        "85",
        calculation("85+12"),
        "97",
    ],
}


def speaking(replies_of: dict[str, list[str]]):
    """A policy with these replies for each speaker, in order."""
    left = {speaker: iter(replies) for speaker, replies in replies_of.items()}

    async def policy(conversation: Conversation) -> str:
        return next(left[conversation.speaker])

    return policy


async def played(
    replies_of: dict[str, list[str]], max_turns: int = 4, max_tokens: int = 100
) -> dict[str, Trajectory]:
    """The trajectories by speaker."""
    agent = PlannerExecutor("Plan.", "Work.")
    spec = rollout_spec(calculator, agent=agent, max_turns=max_turns, max_tokens=max_tokens)
    trajectories, *_ = await play_all(episode_specs(SUM), spec, scripted(speaking(replies_of)))
    return {one.agent: one for one in trajectories if one.turns}


async def test_the_executor_reads_the_step_and_the_planner_the_result() -> None:
    by_agent = await played(REPLIES)
    assert as_letters(by_agent["planner"]) == (
        "^sPlan.$^u17 times 5, and 12 more?$^aMultiply 17 by 5.$"
        "^u85$^aAdd 85 and 12.$^u97$^aAnswer: 97$"
    )
    calls = REPLIES["executor"][::2]
    assert as_letters(by_agent["executor"]) == (
        f"^sWork.$^uMultiply 17 by 5.$^a{calls[0]}$^t85$^a85$"
        f"^sWork.$^uAdd 85 and 12.$^a{calls[1]}$^t97$^a97$"
    )
    assert [turn.context for turn in by_agent["executor"].turns] == [0, 0, 1, 1]
    assert "x" in loss_mask(by_agent["executor"]) and "x" in loss_mask(by_agent["planner"])


async def test_the_planner_gives_the_answer() -> None:
    by_agent = await played(REPLIES)
    assert [one.agent for one in by_agent.values() if one.answered] == ["planner"]
    assert (by_agent["planner"].answer, by_agent["planner"].ending) == ("97", Ending.NO_TOOL_CALLS)
    assert await exact.score(by_agent["planner"], {}) == Score(1.0)


@pytest.mark.parametrize("talker", ["planner", "executor"])
async def test_each_speaker_has_its_own_turn_limit(talker: str) -> None:
    endless = {"planner": ["Go on."] * 9, "executor": ["85"] * 9}
    if talker == "executor":
        endless["executor"] = [calculation("1+1")] * 9
    by_agent = await played(endless)
    assert len(by_agent[talker].turns) == 4
    assert by_agent[talker].ending is Ending.MAX_TURNS


async def test_a_cut_answer_of_the_planner_is_ignored() -> None:
    by_agent = await played({"planner": ["Answer: 123"]}, max_tokens=len("Answer: 12"))
    assert (by_agent["planner"].answered, by_agent["planner"].ending) == (
        None,
        Ending.NO_TOOL_CALLS,
    )
