"""The agents of benchmarks/ablations.py, each without one of its inputs."""

import re

from agentfly_core import tool
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Problem, ToolCall
from agentfly_core.rollout.episode import Agent
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import as_letters, call_text
from agentfly_core.tools.calculator import calculator
from benchmarks.ablations import BlankResults, BlankSteps, ForeignSummary

SUM = Problem("sum", "17*5+12?", {"answer": "97"})
HERE, THERE = Problem("here", "Here?", {}), Problem("there", "There?", {})
REPLIES = {
    "planner": ["17*5", "85+12", "Answer: 97"],
    "executor": [call_text(ToolCall("calculator", {"expression": "17*5"})), "85"],
}


@tool
async def look(where: str) -> str:
    """Look.

    Args:
        where: a place
    """
    return "nothing"


async def folding(conversation: Conversation) -> str:
    """Looks, sums up, looks and sums up again, and answers."""
    name, turn = conversation.problem.id, conversation.turn
    look_there = call_text(ToolCall("look", {"where": name}))
    return [look_there, f"{name} 1", look_there, f"{name} 2", "done"][turn]


async def speaking(conversation: Conversation) -> str:
    """The next reply of a speaker; the executor has one reply for all steps."""
    replies = REPLIES[conversation.speaker]
    answered = sum(getattr(one, "role", "") == "assistant" for one in conversation.messages)
    return replies[answered]


async def played(agent: Agent) -> dict[str, str]:
    """The trajectory of each speaker in letters."""
    spec = rollout_spec(calculator, agent=agent, max_turns=6)
    trajectories, *_ = await play_all(episode_specs(SUM), spec, scripted(speaking))
    return {one.agent: as_letters(one) for one in trajectories if one.turns}


async def begun(*problems: Problem) -> dict[str, list[str]]:
    """The start of each context, by problem; one agent plays all episodes."""
    spec = rollout_spec(look, agent=ForeignSummary(budget=1, ask="Sum up."), max_turns=9)
    trajectories, *_ = await play_all(episode_specs(*problems), spec, scripted(folding))
    read = {one.problem.id: [turn.read[0].content for turn in one.turns] for one in trajectories}
    return {name: [text for text in texts if "?" in text] for name, texts in read.items()}


async def test_a_context_starts_with_the_summary_of_another_ledger() -> None:
    alone, beside = await begun(HERE), await begun(HERE, THERE)
    first, *folded = alone["here"]
    assert (first, len(folded), len({*folded})) == ("Here?", 2, 1)
    assert re.fullmatch(r"Here\?\nbalance \d+, next page \d\d", folded[0])
    assert beside["here"] == alone["here"]
    assert beside["there"][1].splitlines()[1] != folded[0].splitlines()[1]


async def test_with_blank_steps_the_executor_reads_no_step() -> None:
    read = await played(BlankSteps())
    assert read["executor"].startswith("^u$^a<calculator")
    assert read["planner"] == "^u17*5+12?$^a17*5$^u85$^a85+12$^u85$^aAnswer: 97$"


async def test_with_blank_results_the_planner_reads_no_result() -> None:
    read = await played(BlankResults())
    assert read["executor"].startswith("^u17*5$^a<calculator")
    assert read["planner"] == "^u17*5+12?$^a17*5$^u$^a85+12$^u$^aAnswer: 97$"
