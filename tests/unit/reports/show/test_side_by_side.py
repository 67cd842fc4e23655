"""The same problems played by two policies."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from agentfly_core.records.trajectory import Problem, Scored, Trajectory, Unscored
from agentfly_core.reports.show.as_json import both_json
from agentfly_core.reports.show.choice import by_episode
from agentfly_core.reports.show.printed import most_changed, played_twice, show_both
from agentfly_core.runs.episodes import Episodes, Pair, Piece
from agentfly_core.testing.trajectories import trajectory, turn


def pieces_of(played: Trajectory) -> list[Piece]:
    return [Piece("sampled", turn.reply.content) for turn in played.turns]


def step(number: int, **rewards: float | None) -> Episodes:
    """A step of problems with these rewards or none; each reply has the problem and the step."""
    pairs = []
    for name, reward in rewards.items():
        reply = turn([1], {2: -0.5}, reply=f"{name} at {number}")
        played = trajectory(reply, name=f"{name}-{number}", problem=Problem(name, "?"))
        earned = Unscored("late") if reward is None else reward
        pairs.append((played, Scored(played.id, {}, (), earned)))
    return Episodes(f"run:demo@{number}", f"demo, step {number}", tuple(pairs), pieces_of)


EARLIER = step(8, a=1.0, b=0.5, c=0.0, d=1.0, only=1.0)
LATER = step(9, a=0.0, b=0.5, c=1.0, d=None, new=1.0)


def printed(width: int, count: int) -> list[str]:
    twice = played_twice(by_episode(LATER.pairs), EARLIER, LATER.title)
    console = Console(file=io.StringIO(), width=width)
    chosen = most_changed(twice, "worst", count)
    console.print(show_both(LATER, EARLIER, twice, 3, chosen))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_largest_changes_come_first_and_unscored_ones_last() -> None:
    twice = played_twice(by_episode(LATER.pairs), EARLIER, LATER.title)
    order = [each.shown.place[0] for each in most_changed(twice, "worst", 9)]
    assert order == ["a", "b", "c", "d"]
    order = [each.shown.place[0] for each in most_changed(twice, "best", 2)]
    assert order == ["c", "b"]
    assert [each.change for each in twice] == [-1.0, 0.0, 1.0, None]


def test_a_wide_terminal_has_the_earlier_step_at_the_left() -> None:
    text = printed(140, 1)
    assert any(line.startswith("demo, step 9: 5 episodes, ") for line in text)
    assert any(line.endswith(", 3 matching") for line in text)
    assert "4 episodes of the same problems; the reward fell in 1, rose in 1" in text
    assert any(line.startswith("a, reward -1 ") for line in text)
    (row,) = [line for line in text if "a at 9" in line]
    assert row.split() == ["sampled", ">", "a", "at", "8", "sampled", ">", "a", "at", "9"]


def test_a_narrow_terminal_has_one_step_below_the_other() -> None:
    text = [line.split(" > ")[-1] for line in printed(80, 1) if " at " in line]
    assert text == ["a at 8", "a at 9"]


def test_steps_without_a_common_problem_are_refused_with_a_hint() -> None:
    with pytest.raises(ValueError, match=r"share no problem.*--evaluation validation"):
        played_twice(by_episode(LATER.pairs), step(8, other=1.0), LATER.title)


def test_json_has_both_rewards_and_the_change() -> None:
    twice = played_twice(by_episode(LATER.pairs), EARLIER, LATER.title)
    document = both_json(LATER, EARLIER, 5, twice[:1])
    assert (document["reference"], document["against"]) == ("run:demo@9", "run:demo@8")
    (one,) = document["shown"]  # type: ignore[misc]
    assert one["change"] == -1.0  # type: ignore[index, call-overload]


def test_an_episode_of_several_speakers_counts_as_one_fall() -> None:
    def spoken(stored: Episodes) -> Episodes:
        (played, scored), *_ = stored.pairs
        pairs = [(replace(played, id=name, agent=name), scored) for name in ("critic", "planner")]
        return replace(stored, pairs=tuple(pairs))

    earlier, later = spoken(step(8, a=1.0)), spoken(step(9, a=0.0))
    twice = played_twice(by_episode(later.pairs), earlier, later.title)
    console = Console(file=io.StringIO(), width=100)
    console.print(show_both(later, earlier, twice, 2, twice[:1]))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "1 episode of the same problems; the reward fell in 1, rose in 0" in text


def test_the_most_changed_are_episodes_with_all_speakers() -> None:
    def pairs(number: int, **rewards: tuple[float, float]) -> list[Pair]:
        return [
            (
                replace(
                    trajectory(turn([1], {2: -0.5}), name=f"{name}-{agent}-{number}", agent=agent),
                    problem=Problem(name, "?"),
                    episode=f"{name}-{number}",
                ),
                Scored(f"{name}-{agent}-{number}", {}, (), reward),
            )
            for name, earned in rewards.items()
            for agent, reward in zip(("planner", "searcher"), earned, strict=True)
        ]

    before = replace(EARLIER, pairs=tuple(pairs(8, a=(1.0, 0.0), b=(1.0, 1.0))))
    twice = played_twice(by_episode(pairs(9, a=(0.0, 1.0), b=(0.75, 0.75))), before, LATER.title)
    chosen = most_changed(twice, "worst", 1)
    assert [pair[0].id for each in chosen for pair, _ in each.conversations] == [
        "b-planner-9",
        "b-searcher-9",
    ]
