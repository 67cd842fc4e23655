"""Figures of played episodes, with intervals over problems."""

from dataclasses import replace

from agentfly_core.pipeline.play.episodes import Played
from agentfly_core.pipeline.play.summary import figures
from agentfly_core.records.intervals import Mean, Rate, wilson
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    Problem,
    Scored,
    ToolCall,
    Trajectory,
    Unscored,
    of_task,
)
from agentfly_core.testing.trajectories import trajectory, turn


def episode(name: str, group: str, ending: Ending) -> Trajectory:
    """Three calls in two turns: one unreadable, one answered with an error."""
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


GOAL = "right"


def test_endings_calls_errors_and_unscored_episodes_are_counted() -> None:
    summary = figures(PLAYED, GOAL)
    assert (summary.episodes, summary.problems, summary.unscored) == (4, 3, 1)
    assert summary.endings == {"terminal": 2, "max_turns": 1, "failed": 1}
    assert (summary.tool_calls, summary.tool_errors) == (12, 8)
    assert summary.episodes_per_second == 8.0


def test_rewards_and_success_are_means_over_problems() -> None:
    summary = figures(PLAYED, GOAL)
    assert summary.reward == Mean(1.0, None, 2)  # of 0.5 and 1.5
    assert summary.success is not None
    assert (summary.success.share, summary.success.problems) == (0.75, 2)


def test_reasons_of_failed_episodes_are_counted() -> None:
    lost = [replace(one, error="ServiceFailure: gone") for one in PLAYED.episodes[2:]]
    played = replace(PLAYED, episodes=(*PLAYED.episodes[:2], *lost))
    summary = figures(played, GOAL)
    assert summary.causes == {"ServiceFailure: gone": 2}
    assert "  2 failed or unscored: ServiceFailure: gone" in summary.lines()


def test_reasons_of_unscored_episodes_are_counted() -> None:
    reason = Unscored("exact: got '1.0' (str), expected a finite number")
    scores = [replace(score, reward=reason) for score in PLAYED.scores]
    summary = figures(replace(PLAYED, scores=scores), GOAL)
    assert (summary.unscored, summary.causes) == (4, {reason.reason: 4})
    assert f"  4 failed or unscored: {reason.reason}" in summary.lines()


def test_unscored_episodes_give_no_mean() -> None:
    summary = figures(Played("demo-3", PLAYED.episodes[3:], PLAYED.scores[3:], 1.0), GOAL)
    assert (summary.reward, summary.success) == (None, None)


def test_cut_replies_are_counted() -> None:
    cut = replace(turn([1], {2: 0.0, 3: 0.0}).sampled[0], finish="length")
    played = trajectory(
        turn([1], {2: 0.0, 3: 0.0}),
        replace(turn([1], {}), sampled=(cut,)),
        replace(turn([1], {}), sampled=(turn([1], {4: 0.0}).sampled[0], cut)),
        name="a0",
    )
    summary = figures(Played("demo-4", (played,), PLAYED.scores[:1], 1.0), GOAL)
    assert (summary.replies, summary.cut_replies) == (3, 2)


def test_a_mixture_has_success_by_task() -> None:
    episodes = tuple(
        trajectory(turn([1], {2: 0.0}), name=name, problem=of_task(Problem(name, "?"), task))
        for task, name in (("sums", "add-1"), ("sums", "add-2"), ("shop", "red-cup"))
    )
    scores = tuple(
        Scored(one.id, {GOAL: won}, (), won)
        for one, won in zip(episodes, (1.0, 0.0, 1.0), strict=True)
    )
    summary = figures(Played("demo-5", episodes, scores, 1.0), GOAL)
    assert summary.success_by_task == {
        "sums": Rate(0.5, wilson(1, 2), 2),
        "shop": Rate(1.0, wilson(1, 1), 1),
    }
