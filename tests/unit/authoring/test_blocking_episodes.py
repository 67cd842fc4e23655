"""Episodes whose tools, agents or environments block, and what they cost others."""

from __future__ import annotations

import asyncio
import threading
from typing import ClassVar

import pytest

from agentfly_core.authoring import author_loops
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Ending, Observation, Problem
from agentfly_core.rollout.episode import Episode
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
from tests.support.rooms import ONE, Room, broken, events, lease
from tests.support.signals import Signal
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.usefixtures("little_grace")


class Shop(Room):
    """An environment whose verb may block."""


class Slow(Room):
    """The first of it is never made, and the others do not tell their state."""

    released: ClassVar[threading.Event]

    def __init__(self) -> None:
        super().__init__()
        if len(self.made) == 1:
            self.released.wait(LIMIT)

    def state_key(self) -> str:
        self.released.wait(LIMIT)
        return "state"


async def test_one_episodes_tool_that_blocks_costs_no_episode_that_has_nothing_there(
    released: threading.Event,
) -> None:
    @tool(timeout=0.05)
    async def search(chain: int) -> str:
        if chain == 3:
            released.wait(LIMIT)
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
        released.wait(LIMIT)
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
        released.wait(LIMIT)
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
    """An agent that continues after its deadline."""
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
        released.wait(LIMIT)
        return Ending.NO_TOOL_CALLS

    trajectory = await play(["99"], spec=rollout_spec(agent=blocks, deadline=0.1))
    assert (trajectory.ending, len(trajectory.turns)) == (Ending.FAILED, 1)
    assert (await play(["99"])).ending is Ending.NO_TOOL_CALLS


async def test_an_agent_that_blocks_is_named_long_before_its_deadline(
    released: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(author_loops, "STEP_SECONDS", 0.3)

    async def blocks(episode: Episode) -> Ending:
        if episode.problem == ADD:
            released.wait(LIMIT)
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


async def test_a_reset_that_blocks_is_named_with_what_to_do_instead(
    released: threading.Event,
) -> None:
    async def reset(self: Room, problem: Problem) -> None:
        released.wait(LIMIT)

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
