"""Selection of the shown episodes."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

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
)
from agentfly_core.reports.show.choice import (
    Conditions,
    StoredEpisode,
    by_episode,
    first,
    matching,
)
from agentfly_core.runs.episodes import Episodes, Pair, Piece
from agentfly_core.testing.trajectories import trajectory, turn


def played(name: str, reply: Message, ending: Ending, *seen: Observation) -> Trajectory:
    problem = Problem(name, f"What is {name}?")
    only_turn = turn([1], {2: -0.5}, read=[Message("user", problem.prompt)], reply=reply)
    episode = trajectory(only_turn, name=name, problem=problem, ending=ending)
    return replace(episode, closing=seen)


CALLS = Message("assistant", "", (ToolCall("calculator", {"expression": "41+58"}),))
UNREADABLE = Message("assistant", "", (BadCall("calculator(", "cut"),))
RIGHT = played("41+58", CALLS, Ending.TERMINAL, Observation("answer", "99"))
WRONG = played("1+1", Message("assistant", "It is Three."), Ending.NO_TOOL_CALLS)
FAILED = played("2+2", UNREADABLE, Ending.FAILED, Observation("calculator", "no", error=True))
PAIRS: tuple[Pair, ...] = (
    (RIGHT, Scored("41+58", {"exact": 1.0}, (), 1.0)),
    (WRONG, Scored("1+1", {"exact": 0.25}, (), 0.25)),
    (FAILED, Scored("2+2", {}, (), Unscored("it failed"))),
)


def no_pieces(_: Trajectory) -> list[Piece]:
    return []


STORED = Episodes("run:demo@7", "demo, step 7", PAIRS, no_pieces)


def names(episodes: Sequence[StoredEpisode]) -> list[str]:
    return [trajectory.id for episode in episodes for trajectory, _ in episode.conversations]


@pytest.mark.parametrize(
    ("conditions", "left"),
    [
        (Conditions(), ["41+58", "1+1", "2+2"]),
        (Conditions(problem="1+1"), ["1+1"]),
        (Conditions(chain=0), ["41+58", "1+1", "2+2"]),
        (Conditions(chain=1), []),
        (Conditions(ending=Ending.TERMINAL), ["41+58"]),
        (Conditions(below=0.5), ["1+1"]),
        (Conditions(below=0.25), []),
        (Conditions(above=0.25), ["41+58"]),
        (Conditions(tool="calculator"), ["41+58"]),
        (Conditions(error=True), ["2+2"]),
        (Conditions(text="is three"), ["1+1"]),
        (Conditions(text="WHAT IS"), ["41+58", "1+1", "2+2"]),
        (Conditions(text="what is", above=0.0), ["41+58", "1+1"]),
        (Conditions(text='"41+58"'), ["41+58"]),
    ],
)
def test_all_conditions_must_hold_for_an_episode(conditions: Conditions, left: list[str]) -> None:
    assert names(matching(STORED, conditions)) == left


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        (Conditions(tool="calculater"), "has no tool 'calculater'. Did you mean 'calculator'?"),
        (Conditions(tool="search"), "has no tool 'search'. Known: calculator."),
        (Conditions(problem="3+3", tool="calculator"), "has no problem '3+3'."),
    ],
)
def test_a_problem_or_tool_that_no_episode_has_is_refused(
    conditions: Conditions, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        matching(STORED, conditions)


def test_the_worst_or_best_come_first_and_no_reward_is_worst() -> None:
    assert names(first(by_episode(PAIRS), "worst", 2)) == ["2+2", "1+1"]
    assert names(first(by_episode(PAIRS), "best", 3)) == ["41+58", "1+1", "2+2"]


def team(name: str, planner: float, searcher: float) -> list[Pair]:
    """An episode of a planner and a searcher with these rewards."""
    return [
        (
            trajectory(turn([1], {2: -0.5}), name=f"{name}-{agent}", agent=agent, episode=name),
            Scored(f"{name}-{agent}", {}, (), reward),
        )
        for agent, reward in (("planner", planner), ("searcher", searcher))
    ]


TEAMS = [*team("a", 0.0, 1.0), *team("b", 0.25, 0.25), *team("c", 1.0, 1.0)]


def test_the_worst_and_the_best_are_episodes_with_all_speakers() -> None:
    assert names(first(by_episode(TEAMS), "worst", 1)) == ["b-planner", "b-searcher"]
    assert names(first(by_episode(TEAMS), "best", 1)) == ["c-planner", "c-searcher"]


def test_an_episode_matches_by_any_speaker_and_is_complete() -> None:
    stored = replace(STORED, pairs=tuple(TEAMS))
    assert names(matching(stored, Conditions(below=0.1))) == ["a-planner", "a-searcher"]
