"""Parts of `Episode.gather` that wait for each other."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request
from agentfly_core.records.trajectory import Ending, Message, Problem, Sampled, Trajectory
from agentfly_core.rollout import standstill
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.standstill import Parts, _chain, _waits_for_a_part
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import STOP, encode

GO = Message("user", "Go.")
Part = Callable[[], Coroutine[Any, Any, object]]


class InStep(TransformersSampler):
    """Replies "ok" to each batch, which runs once every open branch has a request."""

    async def reply(self, requests: Sequence[Request]) -> list[Sampled]:
        tokens = (*encode("ok"), STOP)
        return [Sampled(tokens, (0.0,) * len(tokens), 7, "stop") for _ in requests]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "SECONDS", 0.04)


async def played(agent: Any, *problems: Problem, sampler: Any = None) -> list[Trajectory]:
    rules = rollout_spec(agent=agent, max_turns=9)
    return (await play_all(episode_specs(*problems), rules, sampler or InStep()))[0]


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


async def pair(episode: Episode) -> Ending:
    """One part waits for the reply of the other, but not in the problem `innocent`."""
    spoke = asyncio.Event()

    async def speak() -> None:
        await episode.context(GO).reply()
        spoke.set()

    async def listen() -> None:
        if episode.problem.id != "innocent":
            await spoke.wait()
        await episode.context(GO).reply()

    await episode.gather(speak(), listen())
    episode.answer("done")
    return Ending.NO_TOOL_CALLS


async def test_parts_that_wait_for_each_other_are_named_and_fail() -> None:
    innocent, stuck = await played(pair, Problem("innocent", "1?"), Problem("stuck", "2?"))
    assert (innocent.ending, innocent.answer) == (Ending.NO_TOOL_CALLS, "done")
    assert stuck.ending is Ending.FAILED
    waits, asks = line_of("await spoke.wait()"), line_of("await episode.context(GO).reply()")
    assert (stuck.error or "").startswith(
        "ServiceFailure: Coroutines of episode.gather wait for each other. These wait for an "
        f"asyncio Event, Queue or Lock: pair.<locals>.listen (test_standstill.py:{waits}). These "
        "wait for a reply, which is sampled only after every coroutine has requested a reply: "
        f"pair.<locals>.speak (test_standstill.py:{asks})."
    )


async def test_an_agent_that_hides_the_standstill_fails_all_the_same() -> None:
    async def agent(episode: Episode) -> Ending:
        try:
            return await pair(episode)
        except Exception:
            episode.answer("done")
            return Ending.NO_TOOL_CALLS

    (stuck,) = await played(agent, Problem("stuck", "2?"))
    assert stuck.ending is Ending.FAILED


async def test_parts_that_all_wait_for_a_queue_fail_with_any_sampler() -> None:
    async def agent(episode: Episode) -> Ending:
        mailbox = asyncio.Queue[str]()
        inner = episode.gather(mailbox.get(), mailbox.get())
        await episode.gather(inner, mailbox.get())
        return Ending.NO_TOOL_CALLS

    async def silent(conversation: Conversation) -> str:
        return ""

    (stuck,) = await played(agent, Problem("stuck", "2?"), sampler=scripted(silent))
    assert stuck.ending is Ending.FAILED
    assert (stuck.error or "").count("Queue.get") == 3


async def test_a_part_may_wait_for_a_reply_that_is_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked, looks, look = asyncio.Event(), [], Parts._standstill

    def counted(parts: Parts) -> str:
        looks.append(reason := look(parts))
        if len(looks) == 9:
            looked.set()
        return reason

    async def slow(conversation: Conversation) -> str:
        await looked.wait()
        return "ok"

    monkeypatch.setattr(Parts, "_standstill", counted)
    (done,) = await played(pair, Problem("slow", "2?"), sampler=scripted(slow))
    assert (done.ending, {*looks}) == (Ending.NO_TOOL_CALLS, {""})


async def primitive() -> None:
    await asyncio.Event().wait()


async def lock() -> None:
    mine = asyncio.Lock()
    await mine.acquire()
    async with mine:
        pass


async def clock() -> None:
    await asyncio.sleep(3600)


async def timed() -> None:
    await asyncio.wait_for(asyncio.Event().wait(), 3600)


installed: dict[str, Any] = {"asyncio": asyncio}
SOURCE = "async def library(): await asyncio.Event().wait()"
exec(compile(SOURCE, "/usr/lib/site-packages/net.py", "exec"), installed)


@pytest.mark.parametrize(
    ("part", "waits"),
    [
        (primitive, True),
        (lock, True),
        (clock, False),
        (timed, False),
        (installed["library"], False),
    ],
)
async def test_only_primitives_of_asyncio_count_as_other_parts(part: Part, waits: bool) -> None:
    task = asyncio.ensure_future(part())
    await asyncio.sleep(0)
    assert _waits_for_a_part(_chain(task)) is waits
    task.cancel()
