"""Calls of authors' code that exceed their limit or ignore a cancellation."""

import asyncio
import contextvars
import mmap
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from agentfly_core.authoring import call_table
from agentfly_core.authoring.author_part import call
from agentfly_core.authoring.call_table import CallTable
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.event_loop import run
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.scoring import score_here
from agentfly_core.authoring.time_limits import Overdue
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Observation, Problem, Trajectory
from agentfly_core.rollout.resources import ResourceManager, resources_for
from agentfly_core.rollout.shard import collect
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    rollout_spec,
    saying,
    scripted,
    unwatched,
)
from tests.support.rooms import ONE, TWO, Room, broken, lease
from tests.support.signals import Signal
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("little_grace")


async def ignores_its_cancellation(end: Signal, result: Any = "late") -> Any:
    while True:
        try:
            await end.wait()
            return result
        except asyncio.CancelledError:
            continue


async def test_a_call_deaf_to_cancellation_ends_at_its_limit() -> None:
    end, place = Signal(), Environment()

    async def deaf(place: Environment) -> str:
        return str(await ignores_its_cancellation(end))

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        return "never"

    for function, arguments in ((deaf, {"place": place}), (stubborn, {})):
        with pytest.raises(Overdue, match=r"^no result within 0\.01 s$"):
            await call(
                partial(function, **arguments), 0.01, "The tool 'search'", list(arguments.values())
            )
    assert place.spoilt
    end.set()


async def test_the_time_for_which_other_calls_hold_the_loop_does_not_count() -> None:
    begun = Signal()

    async def reads() -> str:
        begun.set()
        await asyncio.sleep(0)
        return "ok"

    async def holds() -> None:
        await begun.wait()
        threading.Event().wait(0.3)

    reading = asyncio.create_task(call(reads, 0.2, "The tool 'read'"))
    await asyncio.gather(call(holds, LIMIT, "The tool 'search'"), reading)
    assert reading.result() == "ok"


async def test_a_call_that_holds_the_loop_beyond_its_limit_is_overdue() -> None:
    async def holds() -> str:
        threading.Event().wait(0.1)
        return "late"

    with pytest.raises(Overdue, match=r"^no result within 0\.05 s$"):
        await call(holds, 0.05, "The tool 'search'")


async def test_a_call_that_was_given_up_stays_in_the_table_until_it_ends() -> None:
    end, before = Signal(), set(call_table.table.given_up)

    async def deaf() -> str:
        return str(await ignores_its_cancellation(end))

    with pytest.raises(Overdue):
        await call(deaf, 0.01, "The tool 'search'")
    assert len(call_table.table.given_up - before) == 1
    end.set()
    while call_table.table.given_up - before:  # noqa: ASYNC110
        await asyncio.sleep(0)


async def test_a_task_that_begins_after_its_call_strikes_no_other_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory, end = mmap.mmap(-1, call_table.SIZE), Signal()
    monkeypatch.setattr(call_table, "table", CallTable(memory))
    contexts: list[contextvars.Context] = []

    async def starts_a_server() -> None:
        contexts.append(contextvars.copy_context())

    async def searches() -> None:
        await end.wait()

    await call(starts_a_server, LIMIT, "Shop.start()")
    search = asyncio.create_task(call(searches, LIMIT, "The tool 'search'"))
    while not call_table.calls(memory):  # noqa: ASYNC110
        await asyncio.sleep(0)
    connection = asyncio.get_running_loop().create_task(asyncio.sleep(0), context=contexts[0])
    await connection
    await asyncio.sleep(0)
    assert [one.what for one in call_table.calls(memory)] == ["The tool 'search'"]
    end.set()
    await search
    assert not call_table.calls(memory)


@pytest.mark.slow
def test_asyncio_threads_of_a_tool_block_neither_calls_nor_exit() -> None:
    program = """
import asyncio, threading
from agentfly_core.authoring.author_part import Overdue, call
from agentfly_core.authoring.event_loop import run
async def hangs():
    await asyncio.to_thread(threading.Event().wait)
async def answers():
    return await asyncio.to_thread(sum, (1, 2))
async def main():
    hanging = (call(hangs, 0.01, "hangs") for _ in range(50))
    ends = await asyncio.gather(*hanging, return_exceptions=True)
    print({type(end).__name__ for end in ends}, await call(answers, 30, "answers"))
run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert done.stdout == "{'Overdue'} 3\n"


@pytest.mark.parametrize("method", ["start", "reset", "healthy", "close"])
async def test_an_environment_deaf_to_cancellation_is_abandoned(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentfly_core.rollout.pool.CLOSE_SECONDS", 0.05)
    end = Signal()

    async def ignores(self: Room, problem: Problem | None = None) -> None:
        if self is self.made[0]:
            await ignores_its_cancellation(end)
        self.events.append(method)

    kind = broken(**{method: ignores})
    async with ResourceManager({kind: 1}) as resources:
        for problem in (ONE, TWO):
            try:
                async with lease(resources, kind, problem, 0.05):
                    pass
            except ServiceFailure as failure:
                assert (method, problem) in [("start", ONE), ("reset", ONE)], failure
    end.set()
    found = resources.metrics()
    failed = {
        name: found[f"resources/Broken/{name}"]
        for name in ("starts_failed", "resets_failed", "closes_failed")
    }
    assert failed == {
        f"{name}s_failed": int(name == method) for name in ("start", "reset", "close")
    }
    assert (
        found["resources/Broken/started"]
        == found["resources/Broken/closed"] + failed["closes_failed"]
    )


class Site(BaseHTTPRequestHandler):
    """Answers and keeps the connection, as web services do."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "3")
        self.end_headers()
        self.wfile.write(b"0.5")

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Site) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_cached_client_serves_tools_and_rewards_of_later_steps(site: str) -> None:
    client = httpx.AsyncClient()  # as at the top of a module

    @reward
    async def judge(trajectory: Trajectory) -> float:
        return float((await client.get(site)).text)

    @tool
    async def ask() -> str:
        return (await client.get(site)).text

    script = scripted(saying("<ask>", "ok"))
    with resources_for({}) as here:
        for _ in range(3):
            played, *_ = run(
                collect(
                    episode_specs(ADD, chains=4),
                    rollout_spec(ask),
                    script,
                    unwatched,
                    here,
                )
            )
            scores = score_here(played, {judge: 1.0}, "")
            assert [t.observations for t in played] == [(Observation("ask", "0.5"),)] * 4
            assert [s.reward for s in scores] == [0.5] * 4
