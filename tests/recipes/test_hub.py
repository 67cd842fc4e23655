"""Message hubs: random schedules equal a reference model, and pipelines run their steps."""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from agentfly_core.recipes.hub.hubs import MessageHub
from agentfly_core.recipes.hub.participants import HubMessage, Participant, Placeholder
from agentfly_core.recipes.hub.pipelines import fan_out, if_else, loop, sequential, switch

NAMES = "abcde"
Schedule = list[dict[str, Any]]


class Listener:
    """An agent that notes its messages, takes turns of the loop, and fails at some replies."""

    def __init__(self, name: str, fails: Sequence[int] = (), seed: int = 0) -> None:
        self.name, self.fails, self.heard = name, fails, list[str]()
        self.draw, self.spoken = random.Random(f"{name} {seed}"), 0

    async def observe(self, message: HubMessage) -> None:
        await self.wait()
        self.heard.append(message.id)

    async def reply(self) -> str:
        self.spoken += 1
        number = self.spoken
        await self.wait()
        if number in self.fails:
            raise ValueError(f"{self.name} fails at {number}")
        return f"{self.name} has heard {len(self.heard)}"

    async def wait(self) -> None:
        for _ in range(self.draw.randrange(4)):
            await asyncio.sleep(0)


def drawn(draw: random.Random, depth: int = 0) -> Schedule:
    """Steps of a block: replies, memberships, announcements, blocks in it, and an exception."""
    steps: Schedule = []
    for _ in range(draw.randrange(2, 8)):
        kind = draw.choice(["speak"] * 4 + ["add", "remove", "announce", "nest", "nest", "raise"])
        if kind == "nest" and depth < 3:
            members = draw.sample(NAMES, draw.randrange(1, len(NAMES)))
            steps.append({"do": "nest", "members": members, "body": drawn(draw, depth + 1)})
        elif kind == "raise":
            steps.append({"do": "raise"})
        elif kind != "nest":
            one, awaited = draw.choice(NAMES), draw.random() < 0.5
            passes = draw.random() < 0.4
            steps.append({"do": kind, "who": one, "awaited": awaited, "passes": passes})
    return steps


class Reference:
    """The model: memberships in the order of joining, and the messages of each participant."""

    def __init__(self, fails: dict[str, list[int]]) -> None:
        self.fails = fails
        self.heard: dict[str, list[str]] = {one: [] for one in NAMES}
        self.audiences = list[dict[str, list[str]]]()
        self.joins = list[tuple[int, str]]()
        self.spoken = dict.fromkeys(NAMES, 0)
        self.hubs = self.announced = 0
        self.passed = ""

    def audience(self, one: str) -> list[str]:
        own = [hub for hub, name in self.joins if name == one]
        return [name for hub, name in self.joins if own and hub == own[-1] and name != one]

    def observe(self, one: str, message: str) -> None:
        if message and message[0] != one and message not in self.heard[one]:
            self.heard[one].append(message)

    def block(self, members: Sequence[str], body: Schedule) -> None:
        self.hubs += 1
        hub = self.hubs
        self.joins += [(hub, one) for one in members]
        self.announce(hub)
        for step in body:
            if step["do"] == "raise":
                break
            self.step(hub, step)
        self.joins = [join for join in self.joins if join[0] != hub]
        self.audiences.append({one: self.audience(one) for one in NAMES})

    def announce(self, hub: int) -> None:
        self.announced += 1
        for at, one in self.joins:
            if at == hub:
                self.observe(one, f"news/{self.announced}")

    def step(self, hub: int, step: dict[str, Any]) -> None:
        if step["do"] == "nest":
            return self.block(step["members"], step["body"])
        if step["do"] == "announce":
            return self.announce(hub)
        one = step["who"]
        if step["do"] == "add" and (hub, one) not in self.joins:
            self.joins.append((hub, one))
        elif step["do"] == "remove" and (hub, one) in self.joins:
            self.joins.remove((hub, one))
        elif step["do"] == "speak":
            if step["passes"]:
                self.observe(one, self.passed)
            self.spoken[one] += 1
            works = self.spoken[one] not in self.fails[one]
            self.passed = f"{one}/{self.spoken[one]}" if works else ""
            for name in self.audience(one) if works else ():
                self.observe(name, self.passed)


class Played:
    """The same schedule with real hubs."""

    def __init__(self, fails: dict[str, list[int]], seed: int) -> None:
        self.agents = {one: Listener(one, fails[one], seed) for one in NAMES}
        self.cast = {one: Participant(one, agent) for one, agent in self.agents.items()}
        self.audiences = list[dict[str, list[str]]]()
        self.passed: Placeholder[HubMessage] | None = None
        self.announced = 0

    def news(self) -> HubMessage:
        self.announced += 1
        return HubMessage(f"news/{self.announced}", "news", "")

    async def block(self, members: Sequence[str], body: Schedule) -> None:
        try:
            async with MessageHub([self.cast[one] for one in members], self.news()) as hub:
                for step in body:
                    if step["do"] == "raise":
                        raise KeyError
                    await self.step(hub, step)
        except (KeyError, ValueError):
            pass
        self.audiences.append(
            {name: [other.name for other in one.audience] for name, one in self.cast.items()}
        )

    async def step(self, hub: MessageHub, step: dict[str, Any]) -> None:
        if step["do"] == "nest":
            return await self.block(step["members"], step["body"])
        if step["do"] == "announce":
            return hub.broadcast(self.news())
        one = self.cast[step["who"]]
        if step["do"] == "add":
            hub.add(one)
        elif step["do"] == "remove" and one in hub.members:
            hub.remove(one)
        elif step["do"] == "speak":
            self.passed = one(self.passed) if step["passes"] else one()
            if step["awaited"] and await self.passed.error() is None:
                await self.passed


async def compared(seed: int) -> None:
    draw = random.Random(seed)
    members, body = draw.sample(NAMES, 4), drawn(draw)
    fails = {one: [draw.randrange(1, 9)] for one in NAMES}
    reference, played = Reference(fails), Played(fails, seed)
    reference.block(members, body)
    await played.block(members, body)
    await asyncio.gather(*(one.settled() for one in played.cast.values()), return_exceptions=True)
    assert {one: agent.heard for one, agent in played.agents.items()} == reference.heard
    assert played.audiences == reference.audiences
    for one, agent in played.agents.items():
        numbers = [(sender, int(n)) for sender, n in (m.split("/") for m in agent.heard)]
        assert len({*numbers}) == len(numbers) and one not in dict(numbers)
        for sender in NAMES:
            own = [number for name, number in numbers if name == sender]
            assert own == sorted(own)


async def test_1000_random_schedules_equal_the_reference_model():
    for seed in range(1000):
        await compared(seed)


async def step_of(name: str, message: HubMessage | None) -> HubMessage:
    """Add a name to the content of a message."""
    return HubMessage(name, name, f"{message.content if message else ''}{name}")


STEPS = {name: partial(step_of, name) for name in NAMES}
Long = partial(loop, STEPS["c"], lambda message: message.content.endswith("ccc"))


@pytest.mark.parametrize(
    ("pipeline", "content"),
    [
        (partial(sequential, [STEPS["a"], partial(sequential, [STEPS["b"], STEPS["c"]])]), "xabc"),
        (partial(if_else, lambda one: one.content == "x", STEPS["a"], STEPS["b"]), "xa"),
        (partial(if_else, lambda one: one.content == "y", STEPS["a"], STEPS["b"]), "xb"),
        (partial(switch, lambda one: one.content, {"x": STEPS["a"]}, STEPS["b"]), "xa"),
        (partial(switch, lambda one: one.content, {"y": STEPS["a"]}, STEPS["b"]), "xb"),
        (partial(Long, 2), "xcc"),
        (partial(Long, 9), "xccc"),
    ],
)
async def test_a_pipeline_runs_its_steps_in_order(pipeline, content):
    assert (await pipeline(HubMessage("x", "x", "x"))).content == content


async def test_steps_of_a_fan_out_work_at_the_same_time():
    barrier = asyncio.Barrier(3)

    async def meets(message: HubMessage | None) -> HubMessage:
        await barrier.wait()
        return HubMessage("met", "met", "")

    assert len(await fan_out([meets] * 3)) == 3


async def test_replies_wait_for_what_they_need_alone():
    """A diamond: the middle ones work at the same time, the last one after both."""
    agents = {name: Listener(name) for name in NAMES}
    barrier = asyncio.Barrier(2)

    async def meets() -> str:
        await barrier.wait()
        return "met"

    first, left, right, last = (Participant(name, agents[name]) for name in "abcd")
    agents["b"].reply = agents["c"].reply = meets  # type: ignore[method-assign]
    draft = first()
    one, other = left(draft), right(draft)
    last.observe(one)
    await last(other)
    assert [agents[name].heard for name in "abcd"] == [[], ["a/1"], ["a/1"], ["b/1", "c/1"]]


async def test_an_error_that_nobody_awaits_ends_its_hub():
    failing, other = Participant("a", Listener("a", [1])), Participant("b", Listener("b"))
    with pytest.raises(ValueError, match="a fails at 1"):
        async with MessageHub([failing, other]):
            failing()
            await other()
    assert failing.audience == other.audience == []


async def test_the_error_of_a_fan_out_comes_after_all_its_steps():
    failing, slow = Participant("a", Listener("a", [1])), Participant("b", Listener("b"))
    ended = list[str]()

    async def twice(message: HubMessage | None) -> HubMessage:
        await slow(message)
        ended.append((await slow()).id)
        return await slow()

    with pytest.raises(ValueError, match="a fails at 1"):
        await fan_out([failing, twice])
    assert ended == ["b/2"] and slow.audience == []
