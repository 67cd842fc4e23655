"""Shards are played one after the other, and stored meanwhile."""

from __future__ import annotations

import signal
import threading
import weakref
from asyncio import CancelledError
from contextvars import ContextVar
from threading import Event

import pytest

from agentfly_core.artifacts.store import Artifact
from agentfly_core.inference.sampler import SamplerLost
from agentfly_core.pipeline.playing import PlayedShard
from flows.shard_playing import played_in_turn
from tasks.rollout import PlayInTurn

NOTHING = PlayedShard([], [], {})


def artifact(shard: int) -> Artifact:
    return Artifact(f"shard {shard}", "9f2c")


def test_one_shard_is_played_at_a_time_in_their_order_by_who_asks_for_all_of_them() -> None:
    story: list[tuple[int, str]] = []

    def publish(shard: int, play: PlayInTurn) -> Artifact:
        def work() -> PlayedShard:
            story.append((shard, threading.current_thread().name))
            return NOTHING

        assert play(work) is NOTHING
        return artifact(shard)

    assert played_in_turn(range(4), publish) == [artifact(shard) for shard in range(4)]
    assert story == [(shard, "MainThread") for shard in range(4)]


def test_a_shard_is_stored_while_the_next_one_is_played() -> None:
    second_plays = Event()

    def publish(shard: int, play: PlayInTurn) -> Artifact:
        def work() -> PlayedShard:
            if shard == 1:
                second_plays.set()
            return NOTHING

        play(work)
        assert second_plays.wait(30), "the next one is played only when this one is stored"
        return artifact(shard)

    played_in_turn(range(2), publish)


def test_a_shard_that_was_stored_is_forgotten() -> None:
    held: list[weakref.ref[PlayedShard]] = []

    def publish(shard: int, play: PlayInTurn) -> Artifact:
        def work() -> PlayedShard:
            made = PlayedShard([], [], {})
            held.append(weakref.ref(made))
            return made

        play(work)
        return artifact(shard)

    def last(shard: int, play: PlayInTurn) -> Artifact:
        published = publish(shard, play)
        if shard == 8:
            assert sum(one() is not None for one in held[:6]) == 0
        return published

    played_in_turn(range(9), last)
    assert len(held) == 9


def test_a_shard_that_was_there_is_not_waited_for() -> None:
    assert played_in_turn(range(3), lambda shard, play: artifact(shard)) == [
        artifact(shard) for shard in range(3)
    ]


def test_a_shard_is_played_in_the_context_of_its_stage() -> None:
    stage = ContextVar("stage", default="none")
    seen: list[str] = []

    def publish(shard: int, play: PlayInTurn) -> Artifact:
        def work() -> PlayedShard:
            seen.append(stage.get())
            return NOTHING

        stage.set(f"rollout {shard}")
        play(work)
        return artifact(shard)

    played_in_turn(range(2), publish)
    assert (seen, stage.get()) == (["rollout 0", "rollout 1"], "none")


def test_a_stage_that_is_tried_again_has_its_shard_played_before_the_next_one() -> None:
    story: list[int] = []

    def publish(shard: int, play: PlayInTurn) -> Artifact:
        def work() -> PlayedShard:
            story.append(shard)
            if story == [0]:
                raise SamplerLost("the server died")
            return NOTHING

        try:
            play(work)
        except SamplerLost:
            play(work)
        return artifact(shard)

    played_in_turn(range(2), publish)
    assert story == [0, 0, 1]


@pytest.mark.parametrize("where", ["played", "stored"])
def test_what_a_stage_raises_is_raised_and_no_further_shard_is_played(where: str) -> None:
    story: list[int] = []
    ends: dict[int, type[BaseException]] = {}
    failed = Event()

    def publish(shard: int, play: PlayInTurn) -> Artifact:
        def work() -> PlayedShard:
            story.append(shard)
            if shard == 1 and where == "played":
                raise ValueError("too many episodes failed")
            assert shard != 2 or failed.wait(30)
            return NOTHING

        try:
            play(work)
            if shard == 1:
                raise ValueError("no space left")
        except BaseException as error:
            ends[shard] = type(error)
            failed.set()
            raise
        return artifact(shard)

    message = "too many episodes failed" if where == "played" else "no space left"
    with pytest.raises(ValueError, match=message):
        played_in_turn(range(9), publish)
    assert story == [0, 1] if where == "played" else story in ([0, 1], [0, 1, 2])
    assert ends.pop(1) is ValueError
    assert {*ends.values()} <= {CancelledError}


def test_ctrl_c_ends_what_is_played_and_the_stage_that_waits_for_its_turn() -> None:
    ends: dict[int, type[BaseException]] = {}
    second_waits = Event()

    def publish(shard: int, play: PlayInTurn) -> Artifact:
        def work() -> PlayedShard:
            assert second_waits.wait(30)
            signal.raise_signal(signal.SIGINT)
            return NOTHING

        if shard == 1:
            second_waits.set()
        try:
            play(work)
        except BaseException as error:
            ends[shard] = type(error)
            raise
        return artifact(shard)

    with pytest.raises(KeyboardInterrupt):
        played_in_turn(range(9), publish)
    assert ends == {0: KeyboardInterrupt, 1: CancelledError}
