"""Authors' code that blocks or does not listen is given up, and nobody else has to pay for it."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import httpx
import pytest

from agentfly_core.authoring import author_loops
from agentfly_core.authoring.author_call import Overdue
from agentfly_core.authoring.author_loops import LoopLost
from agentfly_core.authoring.calling import call
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import reward, score
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Ending, Observation, Problem, Trajectory, Unscored
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.event_loop import environment_loop
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.shard import collect
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
    saying,
    scripted,
    unwatched,
)
from tests.support.policies import chained
from tests.support.rooms import ONE, TWO, Room, broken, events, lease
from tests.support.signals import Signal

ADVICE = (
    "use `await` with an async client, `await asyncio.to_thread(...)`, a plain `def` for a tool or "
    "reward, which runs in a thread, or process=True"
)


@pytest.fixture(autouse=True)
def _little_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(author_loops, "GRACE", 0.2)
    Room.made.clear()


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """What blocking code waits for; it is let go at the end."""
    event = threading.Event()
    yield event
    event.set()


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
        released.wait(30)
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
        released.wait(30)

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
        asyncio.get_running_loop().call_soon(released.wait, 30)
        await asyncio.Event().wait()

    with pytest.raises(LoopLost, match="Code that no call stands for held the event loop"):
        await call(hides, 30, "The tool 'search'")


async def test_the_time_in_which_other_code_holds_the_loop_does_not_count(
    released: threading.Event,
) -> None:
    begun, holding, go_on = Signal(), Signal(), Signal()

    async def blocks() -> None:
        holding.set()
        released.wait(30)

    async def needs_the_loop() -> str:
        begun.set()
        await go_on.wait()
        return "ok"

    early = asyncio.create_task(call(needs_the_loop, 0.5, "The tool 'read'"))
    await begun.wait()
    blocking = asyncio.create_task(call(blocks, 30, "The tool 'search'"))
    await holding.wait()
    late = asyncio.create_task(call(needs_the_loop, 0.5, "The tool 'read'"))
    assert await asyncio.wait([early, late], timeout=1) == (set(), {early, late})
    go_on.set()
    released.set()
    assert await asyncio.gather(early, late, blocking) == ["ok", "ok", None]


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
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "{'Overdue'} 3\n"


class Shop(Room):
    """An environment whose verb may block."""


class Slow(Room):
    """The first of it is never made, and the others do not tell their state."""

    released: ClassVar[threading.Event]

    def __init__(self) -> None:
        super().__init__()
        if len(self.made) == 1:
            self.released.wait(30)

    def state_key(self) -> str:
        self.released.wait(30)
        return "state"


async def test_one_episodes_tool_that_blocks_costs_no_episode_that_has_nothing_there(
    released: threading.Event,
) -> None:
    @tool(timeout=0.05)
    async def search(chain: int) -> str:
        if chain == 3:
            released.wait(30)
        return "found"

    sampler = scripted(chained(lambda chain: ("<search chain=3>", "ok") if chain == 3 else ("ok",)))
    played, *_ = await play_all(episode_specs(ADD, chains=8), rollout_spec(search), sampler)
    assert {t.ending for t in played} == {Ending.NO_TOOL_CALLS}
    (told,) = played[3].observations
    assert told.error
    assert told.content.startswith("The tool 'search' held the event loop for")
    assert [t.observations for t in played[:3]] == [()] * 3


async def test_a_call_that_waited_behind_one_that_blocked_is_made_again_where_the_tool_may_be(
    released: threading.Event,
) -> None:
    begun = Signal()

    @tool(timeout=30, retries=1)
    async def read() -> str:
        if not begun._given.done():
            begun.set()
            await asyncio.Event().wait()
        return "read"

    @tool(timeout=0.05)
    async def search() -> str:
        await begun.wait()
        released.wait(30)
        return "found"

    sampler = scripted(chained(lambda chain: (("<read>", "<search>")[chain], "ok")))
    played, *_ = await play_all(episode_specs(ADD, chains=2), rollout_spec(read, search), sampler)
    assert played[0].observations == (Observation("read", "read"),)
    assert played[1].observations[0].error


async def test_an_environment_whose_loop_is_given_up_is_lost_with_its_episode_and_replaced(
    released: threading.Event,
) -> None:
    @tool(timeout=0.05)
    async def search(*, shop: Shop) -> int:
        released.wait(30)
        return len(shop.made)

    rules = rollout_spec(search, limits={Shop: 1})
    script = scripted(saying("<search>", "ok"))
    async with ResourceManager(rules.limits) as resources:
        (lost,), *_ = await collect(episode_specs(ADD), rules, script, unwatched, resources)
        released.set()
        (played,), *_ = await collect(episode_specs(ADD), rules, script, unwatched, resources)
    assert (lost.ending, lost.error) == (
        Ending.FAILED,
        "ServiceFailure: Shop was lost: its event loop was given up, since code held it",
    )
    assert played.observations == (Observation("search", "2"),)
    assert events() == [["start", "reset add-41-58", "close"]] * 2


async def deaf(episode: Episode) -> Ending:
    """An agent that goes on after its deadline."""
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await episode.reply(*episode.opening)
            return Ending.NO_TOOL_CALLS


async def test_a_deaf_agent_fails_at_the_deadline_and_is_given_no_more_replies() -> None:
    trajectory = await play(["99"], spec=rollout_spec(agent=deaf, deadline=0.1))
    assert (trajectory.ending, trajectory.turns) == (Ending.FAILED, ())
    assert trajectory.error == "LeaseExpired: no ending within 0.1 s, the agent's deadline"


async def test_an_agent_that_blocks_fails_at_the_deadline_and_the_next_episode_can_be_played(
    released: threading.Event,
) -> None:
    async def blocks(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        released.wait(30)
        return Ending.NO_TOOL_CALLS

    trajectory = await play(["99"], spec=rollout_spec(agent=blocks, deadline=0.1))
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.FAILED, 1)
    assert (await play(["99"])).ending is Ending.NO_TOOL_CALLS


async def test_an_agent_that_blocks_is_named_long_before_its_deadline(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(author_loops, "STEP_SECONDS", 0.3)

    async def blocks(episode: Episode) -> Ending:
        if episode.problem is ADD:
            released.wait(30)
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    problems = episode_specs(Problem("zebra", "?"), ADD)
    played, *_ = await play_all(
        problems, rollout_spec(agent=blocks, deadline=3600), scripted(saying("99"))
    )
    assert all("The agent blocks held the event loop for" in str(t.error) for t in played)
    assert all(
        "an agent or a policy has to `await` whatever takes time" in str(t.error) for t in played
    )


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


async def test_a_reset_that_blocks_is_named_with_what_to_do_instead(
    released: threading.Event,
) -> None:
    async def reset(self: Room, problem: Problem) -> None:
        released.wait(30)

    sluggish = broken(reset=reset)
    async with ResourceManager({sluggish: 1}) as resources:
        with pytest.raises(
            ServiceFailure,
            match=r"not ready for problem 'one': Overdue: Broken\.reset\(\) held the event loop "
            r"for \S+ s: use .*`await asyncio\.to_thread\(\.\.\.\)`",
        ):
            async with lease(resources, sluggish, ONE, 0.05):
                pass


async def test_making_an_environment_and_asking_for_its_state_are_bounded_too(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentfly_core.rollout.speaker.STATE_SECONDS", 0.05)
    Slow.released = released

    @tool
    async def look(*, slow: Slow) -> str:
        return "seen"

    async with ResourceManager({Slow: 1}) as resources:
        with pytest.raises(
            ServiceFailure,
            match=r"Slow could not be made: Overdue: Slow\(\) held the event loop for",
        ):
            async with lease(resources, Slow, ONE, 0.05):
                pass
    trajectory = await play(["ok"], look)
    assert trajectory.ending is Ending.FAILED
    assert "Slow.state_key()" in str(trajectory.error)


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
            released.wait(30)
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
