"""Messages between parts of `Episode.gather`."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.tool import tool
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Problem,
    Sampled,
    ToolCall,
    Trajectory,
)
from agentfly_core.rollout import standstill
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import STOP, decode, encode


def user(text: str) -> Message:
    return Message("user", text)


class Batches(TransformersSampler):
    """Replies with the seed, and keeps the prompts of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []

    async def reply(self, requests: Sequence[Request]) -> list[Sampled]:
        self.batches.append([decode(request.prompt) for request in requests])
        rows = [(*encode(str(one.conversation.seed % 1000)), STOP) for one in requests]
        return [Sampled(tokens, (0.0,) * len(tokens), 7, "stop") for tokens in rows]


async def played(
    agent: Agent, *problems: Problem, sampler: Any = None, tools: Sequence[Any] = ()
) -> list[Trajectory]:
    rules = rollout_spec(*tools, agent=agent, max_turns=9)
    specs = episode_specs(*(problems or [ADD]))
    return (await play_all(specs, rules, sampler or Batches()))[0]


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == text)


async def talk(episode: Episode) -> Ending:
    """A speaker that says two things to a listener, who answers the second one."""
    to_listener, to_speaker = episode.mailbox(), episode.mailbox()

    async def speak() -> None:
        context = episode.context(user("Speak."))
        for _ in range(2):
            to_listener.put((await context.reply()).content)
            await episode.context(user("Think.")).reply()
        await context.reply(user(await to_speaker.get()))

    async def listen() -> None:
        first, second = await to_listener.get(), await to_listener.get()
        reply = await episode.context(user(f"{first} {second}")).reply()
        to_speaker.put(reply.content)

    await episode.gather(speak(), listen())
    episode.answer("done")
    return Ending.NO_TOOL_CALLS


async def test_a_part_that_waits_for_a_message_does_not_hold_up_replies() -> None:
    sampler = Batches()
    played_by = await played(talk, sampler=sampler)
    assert [one.ending for one in played_by] == [Ending.NO_TOOL_CALLS]
    one, other = (turn.reply.content for turn in played_by[0].turns if turn.call in (0, 1))
    assert [len(batch) for batch in sampler.batches] == [1, 1, 1, 2, 1]
    assert sampler.batches[0] == ["^uSpeak.$^a"] and one != other


async def test_a_reply_to_a_message_is_later_than_the_message() -> None:
    (trajectory,) = await played(talk)
    turns = trajectory.turns
    (listener,) = [turn for turn in turns if turn.read and " " in turn.read[-1].content]
    sent = [turn for turn in turns if turn.reply.content in listener.read[-1].content.split()]
    (answer,) = [turn for turn in turns if turn.read[-1:] == (user(listener.reply.content),)]
    assert max(turn.call for turn in sent) < listener.call < answer.call


@pytest.mark.parametrize("first", [0, 1])
async def test_batches_do_not_depend_on_the_time_of_tools(first: int) -> None:
    async def batches(first: int) -> tuple[list[list[str]], list[Trajectory]]:
        passed = [asyncio.Event(), asyncio.Event()]
        passed[first].set()

        @tool(name="look")
        async def look(place: int) -> str:
            """Look."""
            await passed[place].wait()
            passed[1 - place].set()
            return f"look {place}"

        async def agent(episode: Episode) -> Ending:
            inboxes = [episode.mailbox(), episode.mailbox()]

            async def scout(place: int) -> None:
                await episode.context(user(f"Scout {place}.")).reply()
                (view,) = await episode.call(ToolCall("look", {"place": place}))
                inboxes[place].put(view.content)
                await episode.context(user(f"Scout {place} on.")).reply()

            async def hub() -> None:
                for inbox in inboxes:
                    await episode.context(user(await inbox.get())).reply()

            await episode.gather(scout(0), scout(1), hub())
            episode.answer("done")
            return Ending.NO_TOOL_CALLS

        sampler = Batches()
        trajectories = await played(agent, ADD, Problem("b", "1?"), sampler=sampler, tools=[look])
        return sampler.batches, trajectories

    assert await batches(first) == await batches(1 - first)


async def test_parts_that_all_wait_for_messages_fail_at_once_and_are_named() -> None:
    async def agent(episode: Episode) -> Ending:
        one, other = episode.mailbox(), episode.mailbox()

        async def ping() -> None:
            await one.get()

        async def pong() -> None:
            if episode.problem.id == "innocent":
                one.put("go")
                return
            await episode.context(user("Pong.")).reply()
            await other.get()

        await episode.gather(ping(), pong())
        episode.answer("done")
        return Ending.NO_TOOL_CALLS

    innocent, stuck = await played(agent, Problem("innocent", "1?"), Problem("stuck", "2?"))
    assert (innocent.ending, innocent.answer) == (Ending.NO_TOOL_CALLS, "done")
    assert stuck.ending is Ending.FAILED
    lines = [line_of("await one.get()"), line_of("await other.get()")]
    assert (stuck.error or "").startswith(
        "ServiceFailure: All running coroutines of the episode wait for a message: "
        f"{agent.__qualname__}.<locals>.ping (test_mailbox.py:{lines[0]}), "
        f"{agent.__qualname__}.<locals>.pong (test_mailbox.py:{lines[1]})."
    )


async def test_the_last_part_fails_when_nobody_is_left_to_write_to_it() -> None:
    async def agent(episode: Episode) -> Ending:
        inbox = episode.mailbox()

        async def silent() -> None:
            await episode.context(user("Hm.")).reply()

        async def outer() -> None:
            await episode.gather(silent(), silent())
            await episode.context(user("On.")).reply()

        await episode.gather(inbox.get(), outer())
        return Ending.NO_TOOL_CALLS

    stuck, fine = await played(agent), await played(talk)
    assert (stuck[0].ending, len(stuck[0].turns)) == (Ending.FAILED, 3)
    assert fine[0].ending is Ending.NO_TOOL_CALLS


async def test_a_place_at_the_sampler_is_given_back_after_a_failure() -> None:
    async def agent(episode: Episode) -> Ending:
        if episode.problem.id == "stuck":
            await episode.mailbox().get()
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    sampler = Batches()
    problems = [Problem("stuck", "1?"), ADD, Problem("c", "3?")]
    episodes = await played(agent, *problems, sampler=sampler)
    assert [one.ending.value for one in episodes] == [
        "no_tool_calls",
        "no_tool_calls",
        "failed",
    ]
    assert [len(batch) for batch in sampler.batches] == [2]


async def test_a_wait_for_a_message_may_end_earlier() -> None:
    async def agent(episode: Episode) -> Ending:
        inbox = episode.mailbox()

        async def impatient() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await inbox.get()
            await episode.context(user("Alone.")).reply()

        async def other() -> None:
            await episode.context(user("Other.")).reply()
            inbox.put("late")

        await episode.gather(impatient(), other())
        episode.answer(await inbox.get())
        return Ending.NO_TOOL_CALLS

    sampler = Batches()
    (trajectory,) = await played(agent, sampler=sampler)
    assert (trajectory.ending, trajectory.answer) == (Ending.NO_TOOL_CALLS, "late")
    assert [len(batch) for batch in sampler.batches] == [1, 1]


async def test_two_parts_do_not_wait_for_one_mailbox() -> None:
    async def agent(episode: Episode) -> Ending:
        inbox = episode.mailbox()
        await episode.gather(inbox.get(), inbox.get())
        return Ending.NO_TOOL_CALLS

    (trajectory,) = await played(agent)
    assert trajectory.ending is Ending.FAILED


async def test_a_message_and_an_event_that_never_come_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standstill, "SECONDS", 0.04)

    async def agent(episode: Episode) -> Ending:
        await episode.gather(episode.mailbox().get(), asyncio.Event().wait())
        return Ending.NO_TOOL_CALLS

    async def silent(conversation: Conversation) -> str:
        return ""

    (stuck,) = await played(agent, sampler=scripted(silent))
    assert stuck.ending is Ending.FAILED
    assert "EpisodeMailbox.get (mailbox.py:" in (stuck.error or "") and "Event.wait" in (
        stuck.error or ""
    )
