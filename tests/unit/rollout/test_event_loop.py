"""Environments live on between two pieces of work that need them."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.event_loop import run
from agentfly_core.authoring.tool import tool
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline.services import environments_here
from agentfly_core.records.trajectory import Ending, Problem
from agentfly_core.rollout.child_process import Child
from agentfly_core.rollout.resources import ResourceManager, resources_for
from agentfly_core.rollout.shard import collect
from agentfly_core.store.store import Store
from agentfly_core.system.service import ServiceLost
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    rollout_spec,
    saying,
    scripted,
    unwatched,
)
from tests.support.rooms import ONE, TWO, Room, broken, events, lease
from tests.support.waiting import LIMIT

COUNTER = "import sys\nfor number, line in enumerate(sys.stdin): print(number, flush=True)"


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    Room.made.clear()


class Fresh(Room):
    """Lent once; sets a signal when an instance has started."""

    max_uses = 1
    started: ClassVar[threading.Semaphore]

    async def start(self) -> None:
        await super().start()
        self.started.release()


class Engine(Environment):
    """Counts the questions to a process of its own."""

    made: ClassVar[list[Engine]]

    def __init__(self) -> None:
        self.made.append(self)
        self.process = Child(sys.executable, "-c", COUNTER)

    async def start(self) -> None:
        await self.process.start()

    async def reset(self, problem: Problem) -> None:
        await self.process.ask("reset", LIMIT)

    async def healthy(self) -> bool:
        return self.process.alive

    async def close(self) -> None:
        await self.process.end()


@tool
async def enter(*, room: Room) -> int:
    return len(room.events) - 1


@tool
async def glance(*, room: Fresh) -> int:
    return len(room.made)


@tool
async def ask(*, engine: Engine) -> int:
    return int(await engine.process.ask("how many?", LIMIT))


def calling(name: str) -> Scripted:
    return scripted(saying(f"<{name}>", "ok"))


async def visit(resources: ResourceManager) -> Room:
    async with lease(resources, Room, ONE, LIMIT) as room:
        return room


def test_an_environment_starts_once_for_two_shards() -> None:
    rules = rollout_spec(enter, limits={Room: 2})
    with resources_for(rules.limits) as here:
        for shard in (1, 2):
            work = collect(episode_specs(ADD, chains=2), rules, calling("enter"), unwatched, here)
            played, _, measured = run(work)
            assert [t.observations[0].content for t in played] == [str(shard)] * 2
            counts = [
                measured[f"resources/Room/{name}"]
                for name in ("started", "closed", "in_use", "most_in_use")
            ]
            assert counts == [2 if shard == 1 else 0, 0, 0, 2]
        assert events() == [["start", "reset add-41-58", "reset add-41-58"]] * 2
    assert events() == [["start", "reset add-41-58", "reset add-41-58", "close"]] * 2


def test_the_environments_of_the_next_shard_start_before_it_begins() -> None:
    Fresh.started = threading.Semaphore(0)
    rules = rollout_spec(glance, limits={Fresh: 1})
    with resources_for(rules.limits) as here:
        for shard in (1, 2):
            (played,), *_ = run(
                collect(episode_specs(ADD), rules, calling("glance"), unwatched, here)
            )
            assert played.observations[0].content == str(shard)
            assert all(Fresh.started.acquire(timeout=LIMIT) for _ in range(2 if shard == 1 else 1))
            assert events() == [["start", "reset add-41-58", "close"]] * shard + [["start"]]


def test_an_environment_that_died_while_idle_is_replaced() -> None:
    Engine.made = []
    rules = rollout_spec(ask, limits={Engine: 2})
    with resources_for(rules.limits) as here:
        for shard in (1, 2):
            work = collect(episode_specs(ADD, chains=2), rules, calling("ask"), unwatched, here)
            played, _, measured = run(work)
            assert [t.ending for t in played] == [Ending.NO_TOOL_CALLS] * 2
            if shard == 1:
                os.kill(Engine.made[0].process.pid, signal.SIGKILL)
    assert sorted(t.observations[0].content for t in played) == ["1", "3"]
    assert [measured[f"resources/Engine/{name}"] for name in ("started", "closed")] == [1, 1]


def test_a_shard_is_replayed_on_the_same_loop_after_a_lost_sampler() -> None:
    lost = [ServiceLost("the server died")]

    async def policy(conversation: Conversation) -> str:
        if lost:
            raise lost.pop()
        return ("<enter>", "ok")[conversation.turn]

    rules = rollout_spec(enter, limits={Room: 1})
    with resources_for(rules.limits) as here:
        with pytest.raises(ServiceLost):
            run(collect(episode_specs(ADD), rules, scripted(policy), unwatched, here))
        (played,), _, measured = run(
            collect(episode_specs(ADD), rules, scripted(policy), unwatched, here)
        )
    assert played.observations[0].content == "1"
    assert [measured[f"resources/Room/{name}"] for name in ("started", "closed")] == [2, 1]


def test_what_is_never_given_back_is_named_when_its_home_closes() -> None:
    with pytest.raises(
        RuntimeError,
        match=r"Room: .* 1 environment\. .*: two",
    ):
        with resources_for({Room: 2}) as here:
            run(visit(here))
            run((kept := lease(here, Room, TWO, LIMIT)).__aenter__())
    run(kept.__aexit__(None, None, None))  # otherwise a later test reads its warning


def test_an_error_in_the_block_passes_and_all_is_closed() -> None:
    with pytest.raises(KeyError, match="ours"), resources_for({Room: 1}) as here:
        run(visit(here))
        raise KeyError("ours")
    assert events() == [["start", "reset one", "close"]]
    assert "environments" not in [thread.name for thread in threading.enumerate()]


def test_work_sees_the_context_of_who_has_it_done() -> None:
    name = contextvars.ContextVar("name", default="none")

    async def named() -> str:
        return name.get()

    name.set("quickstart-1f2e3d4c")
    assert run(named()) == "quickstart-1f2e3d4c"


def test_interrupted_work_ends_before_other_work_starts() -> None:
    story: list[str] = []

    async def stuck(resources: ResourceManager) -> None:
        try:
            async with lease(resources, Room, ONE, LIMIT):
                signal.pthread_kill(
                    threading.main_thread().ident or 0, signal.SIGINT
                )  # as Ctrl-C does
                await asyncio.Event().wait()
        finally:
            story.append("cancelled")

    with resources_for({Room: 1}) as here:
        with pytest.raises(KeyboardInterrupt):
            run(stuck(here))
        assert story == ["cancelled"]
        assert events() == [["start", "reset one", "close"]]
        assert run(visit(here)).events == ["start", "reset one"]


def test_system_exit_in_work_reaches_its_caller() -> None:
    async def leave() -> None:
        raise SystemExit(3)

    with resources_for({Room: 1}) as here:
        with pytest.raises(SystemExit, match="3"):
            run(leave())
        assert run(visit(here)).events == ["start", "reset one"]


def test_closing_waits_for_no_start() -> None:
    starting = threading.Event()

    async def start(self: Room) -> None:
        self.events.append("start")
        starting.set()
        await asyncio.Event().wait()

    kind = broken(start=start)
    with resources_for({kind: 1}) as here:
        run(here.warm([kind], 1, 3600))
        assert starting.wait(LIMIT)
    assert events() == [["start", "close"]]


def test_as_many_environments_start_as_a_shard_needs(
    tmp_path: Path,
) -> None:
    settings = {
        "model": "nano:calculator",
        "data": {"use": "a:b", "train": 8, "test": 1},
        "tools": ["tests.unit.rollout.test_event_loop:enter"],
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "environments": {"tests.support.rooms:Room": 16},
        "rollout": {"problems": 2, "group_size": 2},
        "steps": 1,
    }
    experiment = Experiment.of(
        "rooms",
        Settings.model_validate(settings),
        {},
        Site(),
        Store.at(str(tmp_path / "store"), tmp_path),
    )
    with environments_here(experiment.whole) as here:
        assert len(run(visit(here)).made) == 4
    assert sorted(events()) == [["start", "close"]] * 3 + [["start", "reset one", "close"]]
