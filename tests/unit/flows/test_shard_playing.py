"""Shards are played one after the other, and stored meanwhile."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest

from agentfly_core.artifacts.store import Artifact
from agentfly_core.pipeline.services import RolloutServices
from agentfly_core.rollout.event_loop import Interrupted, environment_loop
from flows.shard_playing import played_in_turn
from tasks.rollout import Begun


@pytest.fixture
def services() -> Iterator[RolloutServices]:
    unused: Any = None
    with environment_loop({}) as loop:
        yield RolloutServices(unused, loop, unused, {})


def test_one_shard_is_played_at_a_time_in_their_order_and_comes_back_in_it(
    services: RolloutServices,
) -> None:
    story: list[str] = []

    async def work(shard: int) -> None:
        story.append(f"{shard} begins")
        await asyncio.sleep(0)
        story.append(f"{shard} ends")

    def stage(shard: int, playing: RolloutServices, begun: Begun) -> Artifact:
        with playing.environments.turn:
            begun()
            playing.environments.run(work(shard))
        return Artifact(f"shard {shard}", "9f2c")

    published = played_in_turn(services, range(4), stage)
    assert [one.uri for one in published] == ["shard 0", "shard 1", "shard 2", "shard 3"]
    assert story == [f"{shard} {what}" for shard in range(4) for what in ("begins", "ends")]


def test_a_shard_is_stored_while_the_next_one_is_played(services: RolloutServices) -> None:
    played = [Event(), Event()]

    def stage(shard: int, playing: RolloutServices, begun: Begun) -> Artifact:
        with playing.environments.turn:
            begun()
            played[shard].set()
        assert played[1].wait(30), "the next one is played only when this one is stored"
        return Artifact(f"shard {shard}", "9f2c")

    played_in_turn(services, range(2), stage)


def test_a_shard_that_was_there_is_waited_for_by_nobody(services: RolloutServices) -> None:
    there = Artifact("shard", "9f2c")
    assert played_in_turn(services, range(3), lambda *_: there) == [there] * 3


def test_what_a_shard_raises_ends_the_next_one_and_those_after_it_do_not_begin(
    services: RolloutServices,
) -> None:
    begins: list[int] = []
    second_plays, ends = Event(), list[type[BaseException]]()

    async def endless() -> None:
        second_plays.set()
        await asyncio.Event().wait()

    def stage(shard: int, playing: RolloutServices, begun: Begun) -> Artifact:
        begins.append(shard)
        with playing.environments.turn:
            begun()
            if shard:
                try:
                    playing.environments.run(endless())
                except BaseException as error:
                    ends.append(type(error))
                    raise
        assert second_plays.wait(30)
        raise ValueError("no space for shard 0")

    with pytest.raises(ValueError, match="no space for shard 0"):
        played_in_turn(services, range(9), stage)
    assert begins in ([0, 1], [0, 1, 2]), "the third one may have waited for its turn"
    assert {*ends} == {Interrupted}


def test_ctrl_c_ends_the_shard_that_is_played_and_other_work_goes_on(
    services: RolloutServices,
) -> None:
    begins: list[int] = []

    async def stuck() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await asyncio.Event().wait()

    async def work() -> str:
        return "done"

    def stage(shard: int, playing: RolloutServices, begun: Begun) -> Artifact:
        begins.append(shard)
        with playing.environments.turn:
            begun()
            playing.environments.run(stuck())
        raise AssertionError("it is cancelled")

    with pytest.raises(KeyboardInterrupt):
        played_in_turn(services, range(9), stage)
    assert begins in ([0], [0, 1])
    assert services.environments.run(work()) == "done"
