"""The agent that sums up its context and continues in a fresh one."""

import pytest

from agentfly_core import tool
from agentfly_core.agents.folding import Folding
from agentfly_core.records.trajectory import Ending, Problem, ToolCall
from agentfly_core.rl.batch import pack
from agentfly_core.testing.episodes import play, rollout_spec
from agentfly_core.testing.letters import as_letters, loss_mask

PAGES = Problem("pages", "Add pages 1 to 3.", {"answer": "60", "pages": [10, 20, 30]})


@tool
async def page(number: int, *, problem: Problem) -> str:
    """Read a page.

    Args:
        number: from 1
    """
    return str(problem.facts["pages"][number - 1])


def turned(number: int) -> ToolCall:
    return ToolCall("page", {"number": number})


async def test_a_new_context_has_question_and_summary_only() -> None:
    agent = Folding(budget=60, ask="Sum up.")
    spec = rollout_spec(page, agent=agent, system="Be brief.", max_turns=9, max_model_len=140)
    replies = [turned(1), turned(2), "30 so far", turned(3), "60"]
    trajectory = await play(replies, problem=PAGES, spec=spec)
    assert (trajectory.answer, trajectory.ending) == ("60", Ending.NO_TOOL_CALLS)
    first = (
        "^sBe brief.$^uAdd pages 1 to 3.$"
        "^a<page number:1>$^t10$^a<page number:2>$^t20$^uSum up.$^a30 so far$"
    )
    second = "^sBe brief.$^uAdd pages 1 to 3.\n30 so far$^a<page number:3>$^t30$^a60$"
    assert as_letters(trajectory) == first + second
    assert [turn.context for turn in trajectory.turns] == [0, 0, 0, 1, 1]
    assert all(trajectory.trains(turn) for turn in trajectory.turns)


async def test_a_short_episode_equals_one_of_the_tool_loop() -> None:
    spec = rollout_spec(page, agent=Folding(budget=900), max_turns=9)
    folded = await play([turned(1), "10"], problem=PAGES, spec=spec)
    looped = await play([turned(1), "10"], page, problem=PAGES)
    assert as_letters(folded) == as_letters(looped)
    assert loss_mask(folded) == loss_mask(looped)


async def test_each_context_is_a_row_of_the_same_trajectory() -> None:
    spec = rollout_spec(page, agent=Folding(budget=30, ask="Sum up."), max_turns=9)
    trajectory = await play([turned(1), "10 so far", "10"], problem=PAGES, spec=spec)
    batch = pack([trajectory])
    assert batch.trajectory.tolist() == [0, 0]
    lengths = [len("<page number:1>$") + len("10 so far$"), len("10$")]
    assert batch.sampled.sum(1).tolist() == lengths


def test_a_budget_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Folding\(budget=0\): .* at least 1 token"):
        Folding(0)
