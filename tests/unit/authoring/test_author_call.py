"""Authors' code that blocks or does not listen is given up, and nobody else has to pay for it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from agentfly_core.authoring import author_loops
from agentfly_core.authoring.author_call import Overdue, PendingCall
from agentfly_core.authoring.author_loops import LoopLost
from agentfly_core.authoring.calling import call
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import reward, score
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Observation, Problem, Trajectory, Unscored
from agentfly_core.rollout.event_loop import environment_loop
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.shard import collect
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
    unwatched,
)
from tests.support.rooms import ONE, TWO, Room, broken, lease
from tests.support.signals import Signal
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("little_grace")
ADVICE = (
    "use `await` with an async client, `await asyncio.to_thread(...)`, a plain `def` for a tool or "
    "reward, which runs in a thread, or process=True"
)


async def ignores_its_cancellation(end: Signal, result: Any = "late") -> Any:
    while True:
        try:
            await end.wait()
            return result
        except asyncio.CancelledError:
            continue


async def test_a_call_deaf_to_cancellation_ends_at_its_limit_and_a_late_answer_is_dropped() -> None:
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
    assert not place.lost
    end.set()


async def test_code_that_holds_its_loop_is_named_and_those_behind_it_are_not_blamed(
    released: threading.Event,
) -> None:
    holding = Signal()

    async def blocks() -> str:
        holding.set()
        released.wait(LIMIT)
        return "late"

    async def waits() -> None:
        await asyncio.Event().wait()

    async def answers() -> str:
        return "ok"

    others = [asyncio.create_task(call(waits, 30, "The tool 'read'")) for _ in range(3)]
    blocked = asyncio.create_task(call(blocks, 0.01, "The tool 'search'"))
    await holding.wait()
    unbegun = asyncio.create_task(call(answers, 0.01, "The tool 'read'"))
    with pytest.raises(
        Overdue, match=r"^The tool 'search' held the event loop for \S+ s: " + re.escape(ADVICE)
    ):
        await blocked
    for other in others:
        with pytest.raises(LoopLost, match="The tool 'search' held the event loop"):
            await other
    assert await unbegun == "ok"  # on the next loop


async def test_what_a_call_starts_and_leaves_behind_is_its_own_doing(
    released: threading.Event,
) -> None:
    async def blocks() -> None:
        released.wait(LIMIT)

    async def leaves() -> str:
        asyncio.get_running_loop().call_soon(asyncio.create_task, blocks())
        await asyncio.Event().wait()
        return "never"

    with pytest.raises(Overdue, match="The tool 'search' held the event loop"):
        await call(leaves, 0.3, "The tool 'search'")


async def test_a_callback_that_holds_the_loop_is_nobodys_fault(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(author_loops, "STEP_SECONDS", 0.3)

    async def hides() -> None:
        asyncio.get_running_loop().call_soon(released.wait, LIMIT)
        await asyncio.Event().wait()

    with pytest.raises(LoopLost, match="Code that no call stands for held the event loop"):
        await call(hides, LIMIT, "The tool 'search'")


async def test_a_call_that_comes_just_as_its_loop_is_given_up_is_lost() -> None:
    loop, work = author_loops.Loop("parts"), PendingCall("The tool 'search'", 30.0)
    loop.given_up = True

    async def returns() -> None:
        loop._loop.stop()

    loop.begin(work, returns)
    await work.ended
    with pytest.raises(LoopLost, match="other code held the event loop until it was given up"):
        work.check()


async def test_the_watch_outlives_a_loop_that_ends_as_it_is_given_up(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop, work, holding = (
        author_loops.Loop("parts"),
        PendingCall("The tool 'search'", 0.0),
        Signal(),
    )

    async def blocks() -> None:
        holding.set()
        released.wait(LIMIT)

    def end(stops: Callable[[], None]) -> None:
        monkeypatch.setattr(loop._loop, "call_soon_threadsafe", soon)
        soon(stops)
        released.set()
        loop._thread.join(LIMIT)

    loop.begin(work, blocks)
    await holding.wait()
    soon = loop._loop.call_soon_threadsafe
    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", end)
    loop._give_up(work)
    assert "in blocks" in caplog.text
    await work.ended
    with pytest.raises(Overdue, match="The tool 'search' held the event loop"):
        work.check()


async def test_a_call_on_a_loop_whose_thread_ended_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(author_loops, "STEP_SECONDS", 0.0)
    loop, work = author_loops.Loop("parts"), PendingCall("The tool 'search'", 30.0)
    loop._loop.call_soon_threadsafe(loop._loop.stop)
    loop._thread.join(LIMIT)
    loop.begin(work, partial(asyncio.sleep, 0))
    loop.cancel(work)
    for _ in range(2):
        loop.look(author_loops.TICK)
    await work.ended
    with pytest.raises(LoopLost, match="held the event loop"):
        work.check()


@pytest.mark.slow
async def test_the_time_in_which_other_code_holds_the_loop_does_not_count(
    released: threading.Event,
) -> None:
    begun, holding, go_on = Signal(), Signal(), Signal()

    async def blocks() -> None:
        holding.set()
        released.wait(LIMIT)

    async def needs_the_loop() -> str:
        begun.set()
        await go_on.wait()
        return "ok"

    early = asyncio.create_task(call(needs_the_loop, 0.5, "The tool 'read'"))
    await begun.wait()
    blocking = asyncio.create_task(call(blocks, LIMIT, "The tool 'search'"))
    await holding.wait()
    late = asyncio.create_task(call(needs_the_loop, 0.5, "The tool 'read'"))
    assert await asyncio.wait([early, late], timeout=1) == (set(), {early, late})
    go_on.set()
    released.set()
    assert await asyncio.gather(early, late, blocking) == ["ok", "ok", None]


@pytest.mark.slow
def test_threads_a_tool_starts_by_asyncio_keep_neither_each_other_nor_the_program_waiting() -> None:
    program = """
import asyncio, threading
from agentfly_core.authoring.calling import Overdue, call
async def hangs():
    await asyncio.to_thread(threading.Event().wait)
async def answers():
    return await asyncio.to_thread(sum, (1, 2))
async def main():
    hanging = (call(hangs, 0.01, "hangs") for _ in range(50))
    ends = await asyncio.gather(*hanging, return_exceptions=True)
    print({type(end).__name__ for end in ends}, await call(answers, 30, "answers"))
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    assert done.stdout == "{'Overdue'} 3\n"


@pytest.mark.parametrize("method", ["start", "reset", "healthy", "close"])
async def test_an_environment_that_does_not_listen_is_given_up_after_its_time(
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


def test_a_client_that_is_made_once_serves_tools_and_rewards_from_step_to_step(site: str) -> None:
    client = httpx.AsyncClient()  # as at the top of a module

    @reward
    async def judge(trajectory: Trajectory) -> float:
        return float((await client.get(site)).text)

    @tool
    async def ask() -> str:
        return (await client.get(site)).text

    script = scripted(saying("<ask>", "ok"))
    with environment_loop({}) as here:
        for _ in range(3):
            played, *_ = here.run(
                collect(
                    episode_specs(ADD, chains=4),
                    rollout_spec(ask),
                    script,
                    unwatched,
                    here.resources,
                )
            )
            scores = asyncio.run(score(played, {judge: 1.0}))
            assert [t.observations for t in played] == [(Observation("ask", "0.5"),)] * 4
            assert [s.reward for s in scores] == [0.5] * 4


async def test_a_reward_that_blocks_is_unscored_and_those_behind_it_are_scored(
    released: threading.Event,
) -> None:
    @reward(timeout=0.05)
    async def judge(trajectory: Trajectory) -> float:
        if trajectory.chain == 1:
            released.wait(LIMIT)
        return 1.0

    played, *_ = await play_all(
        episode_specs(ADD, chains=4), rollout_spec(), scripted(saying("ok"))
    )
    scores = await score(played, {judge: 1.0})
    assert [s.reward for i, s in enumerate(scores) if i != 1] == [1.0] * 3
    assert isinstance(scores[1].reward, Unscored)
    assert scores[1].reward.reason.startswith(
        "judge: Overdue: The reward 'judge' held the event loop for"
    )
