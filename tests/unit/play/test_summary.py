"""What is counted of played episodes, and intervals by problem."""

from __future__ import annotations

from dataclasses import replace

from agentfly_core.play.episodes import Played
from agentfly_core.play.summary import figures
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    Scored,
    ToolCall,
    Trajectory,
    Unscored,
)
from agentfly_core.runs.intervals import Mean
from agentfly_core.testing.trajectories import trajectory, turn


def episode(name: str, group: str, ending: Ending) -> Trajectory:
    """Three calls in two turns, of which one could not be read and one was answered with an
    error.
    """
    calls = (ToolCall("search", {}), BadCall("{", "unfinished"))
    answers = (Observation("search", "none", error=True), Observation("unreadable", "", error=True))
    return trajectory(
        turn([1], {2: 0.0}, reply=Message("assistant", "", calls)),
        turn([3], {4: 0.0}, read=answers, reply=Message("assistant", "", calls[:1])),
        name=name,
        group=group,
        ending=ending,
    )


PLAYED = Played(
    "demo-1",
    (
        episode("a0", "a", Ending.TERMINAL),
        episode("a1", "a", Ending.MAX_TURNS),
        episode("b0", "b", Ending.TERMINAL),
        episode("c0", "c", Ending.FAILED),
    ),
    (
        Scored("a0", {"right": 1.0}, (), 1.0),
        Scored("a1", {"right": 0.0}, (), 0.0),
        Scored("b0", {"right": 1.0}, (), 1.5),
        Scored("c0", {}, (), Unscored("it failed")),
    ),
    seconds=0.5,
)


def test_endings_calls_and_errors_are_counted_and_unscored_episodes_left_out_of_rewards() -> None:
    found = figures(PLAYED, "right", 8)
    assert (found.episodes, found.problems, found.unscored) == (4, 3, 1)
    assert found.endings == {"terminal": 2, "max_turns": 1, "failed": 1}
    assert (found.tool_calls, found.tool_errors) == (12, 8)
    assert found.episodes_per_second == 8.0


def test_rewards_and_success_are_means_over_problems_not_episodes() -> None:
    found = figures(PLAYED, "right", 8)
    assert found.reward == Mean(1.0, None, 2)  # of 0.5 and 1.5
    assert found.success is not None
    assert (found.success.share, found.success.problems) == (0.75, 2)


def test_none_scored_have_no_mean() -> None:
    found = figures(Played("demo-3", PLAYED.episodes[3:], PLAYED.scores[3:], 1.0), "right", 8)
    assert (found.reward, found.success) == (None, None)


def test_replies_that_were_cut_are_counted_by_the_limit_that_cut_them() -> None:
    cut = replace(turn([1], {2: 0.0, 3: 0.0}).sampled[0], finish="length")
    played = trajectory(
        turn([1], {2: 0.0, 3: 0.0}),
        replace(turn([1], {}), sampled=(cut,)),
        replace(turn([1], {}), sampled=(turn([1], {4: 0.0}).sampled[0], cut)),
        name="a0",
    )
    found = figures(Played("demo-4", (played,), PLAYED.scores[:1], 1.0), "right", max_tokens=3)
    assert (found.replies, found.cut_replies, found.cut_at_max_tokens) == (3, 2, 1)
