from dataclasses import replace

import pytest

from agentfly_core.pipeline.stop_conditions import (
    GateClosed,
    stop_if_diverging,
    stop_if_failing,
    stop_if_unobserved,
    stop_if_unscored,
)
from agentfly_core.records.trajectory import Ending, Scored, Trajectory, Unscored
from agentfly_core.testing.trajectories import trajectory


def episodes(failed: int, of: int) -> list[Trajectory]:
    endings = [Ending.FAILED] * failed + [Ending.TERMINAL] * (of - failed)
    return [
        trajectory(name=f"t{i}", ending=ending, error="shop died")
        for i, ending in enumerate(endings)
    ]


def scores(unscored: int, of: int) -> list[Scored]:
    return [
        Scored(f"t{i}", {}, (), Unscored("exact: KeyError") if i < unscored else 1.0)
        for i in range(of)
    ]


def test_at_most_a_tenth_of_the_episodes_may_fail() -> None:
    stop_if_failing(episodes(10, of=100), 0.10)
    with pytest.raises(
        GateClosed, match=r"11 of 100 episodes failed \(gates.failed allows 10%\).*shop died"
    ):
        stop_if_failing(episodes(11, of=100), 0.10)


def test_broken_agents_count_as_failed_with_the_main_error_first() -> None:
    errors = ("lost, at react.py:7", *["no number, at react.py:9"] * 2)
    played = [
        replace(episode, episode=episode.id, ending=Ending.AGENT_ERROR, error=error)
        for episode, error in zip(episodes(3, of=3), errors, strict=True)
    ]
    with pytest.raises(GateClosed) as caught:
        stop_if_failing(played, 0.10)
    assert str(caught.value) == (
        "3 of 3 episodes failed (gates.failed allows 10%). Most frequent causes: no number, at "
        "react.py:9 (first in the problem 'problem-g0'); lost, at react.py:7 (first in the problem "
        "'problem-g0'). Fix these causes, or raise gates.failed."
    )


def test_an_episode_of_several_speakers_fails_once() -> None:
    lost = [
        replace(one, id=f"{one.id}-{agent}", agent=agent)
        for one in episodes(1, of=4)
        for agent in ("planner", "searcher", "searcher/2")
    ]
    stop_if_failing(lost, 0.05)  # one may fail, however few there are
    observed = [replace(one, observed={"stock": Unscored("late")}) for one in lost]
    unscored = [Scored(one.id, {}, (), Unscored("late")) for one in observed]
    for stop in (
        lambda: stop_if_unobserved(observed, 0.05),
        lambda: stop_if_unscored(observed[3:], unscored[3:], 0.05),
    ):
        with pytest.raises(GateClosed, match=r"(4 of 4|3 of 3) .*no reward"):
            stop()


def test_at_most_five_percent_may_be_unscored() -> None:
    stop_if_unscored(episodes(0, of=100), scores(5, of=100), 0.05)
    with pytest.raises(GateClosed, match=r"6 of 100 episodes .*exact: KeyError"):
        stop_if_unscored(episodes(0, of=100), scores(6, of=100), 0.05)


def test_the_list_of_causes_ends_with_one_full_stop() -> None:
    for reason, causes in (
        ("judge: ReadError, without a message", "message."),
        ("Why?", "Why?"),
        ("no answer.", "answer."),
    ):
        unscored = [Scored(f"t{i}", {}, (), Unscored(reason)) for i in range(3)]
        with pytest.raises(GateClosed) as caught:
            stop_if_unscored(episodes(0, of=3), unscored, 0.05)
        assert f"{causes} Fix these causes, or raise gates.unscored." in str(caught.value)


def test_two_episodes_may_always_be_unscored() -> None:
    stop_if_unscored(episodes(0, of=4), scores(2, of=4), 0.05)
    with pytest.raises(GateClosed, match="3 of 4"):
        stop_if_unscored(episodes(0, of=4), scores(3, of=4), 0.05)


def test_three_skipped_optimizer_steps_in_a_row_stop_a_run() -> None:
    stop_if_diverging(2, "update")
    with pytest.raises(
        GateClosed, match=r"3 optimizer steps .* not finite.* update\.learning_rate"
    ):
        stop_if_diverging(3, "update")


def test_failed_episodes_are_counted_by_their_own_gate_only() -> None:
    stop_if_unscored(episodes(9, of=100), scores(9, of=100), 0.05)
