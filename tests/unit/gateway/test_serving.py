"""A policy that is served to any client, with conversations as episodes."""

import asyncio
import gc
import socket
import tracemalloc
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import openai
import pytest
from openai import AsyncOpenAI

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.gateway import server, serving
from agentfly_core.gateway.server import HOST
from agentfly_core.gateway.serving import ServedPolicy, endless
from agentfly_core.gateway.session import SpeakerPattern
from agentfly_core.inference.sampler import Request, SamplerSession
from agentfly_core.records.trajectory import Problem, Sampled
from agentfly_core.rollout.frozen import Cast
from agentfly_core.system.service import ServiceLost
from agentfly_core.testing.episodes import episode_specs, rollout_spec, scripted
from agentfly_core.testing.letters import decode
from tests.support.gateway_clients import ask, user
from tests.support.waiting import LIMIT

KEY = "k" * 32
SPEAKERS = {"critic": SpeakerPattern(path="critic")}


class Batches(SamplerSession):
    """Replies to all open branches at once, `  99 ` by default."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.prompts, self.sizes = list[Sequence[int]](), list[int]()
        self.seeds = list[int]()
        self.open_branches, self.fault = 0, fault
        self._waiting = list[asyncio.Event]()

    async def sample(self, request: Request) -> Sampled:
        if self.fault:
            raise self.fault
        event = asyncio.Event()
        self._waiting.append(event)
        self.prompts.append(request.prompt)
        self.seeds.append(request.conversation.seed)
        self._release()
        await event.wait()
        return await scripted(_reply).sample(request)

    def open(self) -> None:
        self.open_branches += 1

    def close(self) -> None:
        self.open_branches -= 1
        self._release()

    def _release(self) -> None:
        if self._waiting and len(self._waiting) >= self.open_branches:
            self.sizes.append(len(self._waiting))
            for event in self._waiting:
                event.set()
            self._waiting = []


async def _reply(conversation: Conversation) -> str:
    return "  99 "


@asynccontextmanager
async def served(session: SamplerSession, key: str = KEY) -> AsyncIterator[AsyncOpenAI]:
    """A client of a policy that this session samples."""
    (episode,) = episode_specs(Problem("served", ""))
    here = Cast([session], {}, {})
    policy = ServedPolicy(
        "run:mine", endless(rollout_spec(max_model_len=200_000)), here, episode, SPEAKERS
    )
    async with (
        server.serving(policy, "/v1", socket.create_server((HOST, 0)), KEY) as url,
        AsyncOpenAI(base_url=url, api_key=key, max_retries=0, timeout=LIMIT) as client,
    ):
        yield client
    if policy.lost.done():
        await policy.lost


async def test_an_echo_keeps_the_tokens_that_the_policy_sampled():
    session = Batches()
    async with served(session) as client:
        for question in ("1+1?", "2+2?"):
            await ask(client, [user(question)])
        echo = {"role": "assistant", "content": "99"}
        await ask(client, [user("1+1?"), echo, user("Sure?")])
    assert decode(session.prompts[-1]) == "^u1+1?$^a  99 $^uSure?$^a"
    assert session.open_branches == 0


@pytest.mark.parametrize(("bound", "most"), [("MOST_CONVERSATIONS", 1), ("MOST_BYTES", 8500)])
async def test_forgotten_conversations_are_read_as_plain_text(monkeypatch, bound, most):
    monkeypatch.setattr(serving, bound, most)
    session = Batches()
    async with served(session) as client:
        for question in ("1+1?", "2+2?"):
            await ask(client, [user(question)])
        echo = {"role": "assistant", "content": "99"}
        await ask(client, [user("1+1?"), echo, user("Sure?")])
    assert decode(session.prompts[-1]) == "^u1+1?$^a99$^uSure?$^a"


@pytest.mark.parametrize(
    ("bound", "most"),
    [
        # a letter takes 9 bytes: 8 of its token and 1 of the message
        pytest.param(serving.MOST_BYTES, 4 * 10 * 10_000 * 11, id="no body"),
        pytest.param(400_000, 400_000, id="bounded"),
    ],
)
async def test_memory_grows_with_new_messages_up_to_a_bound(monkeypatch, bound, most):
    monkeypatch.setattr(serving, "MOST_BYTES", bound)
    session, text = Batches(), "x" * 10_000
    async with served(session) as client:

        async def converse(name: str) -> None:
            messages = [user(name)]
            for _ in range(10):
                messages.append(user(text))
                reply = (await ask(client, messages)).choices[0].message
                messages.append({"role": "assistant", "content": reply.content})

        await converse("first")
        session.prompts.clear()
        tracemalloc.start()
        try:
            for number in range(4):
                await converse(str(number))
            session.prompts.clear()
            gc.collect()
            assert tracemalloc.get_traced_memory()[0] < most
        finally:
            tracemalloc.stop()


async def test_a_conversation_that_begins_anew_has_other_draws(monkeypatch):
    monkeypatch.setattr(serving, "MOST_REPLIES", 1)
    session = Batches()
    async with served(session) as client:
        for _ in range(2):
            await ask(client, [user("1+1?")])
    assert len({*session.seeds}) == 2


async def test_retries_count_as_one_reply(monkeypatch):
    monkeypatch.setattr(serving, "MOST_REPLIES", 2)
    session = Batches()
    async with served(session) as client:
        for number in range(4):
            headers = {"x-stainless-retry-count": str(number)}
            await ask(client, [user("1+1?")], extra_headers=headers)
    assert len(session.prompts) == 1


async def test_requests_at_the_same_time_wait_for_no_other_ones():
    session = Batches()
    async with served(session) as client:
        requests = (ask(client, [user(f"{n % 2}+1?")], n=1 + n % 3) for n in range(6))
        replies = await asyncio.gather(*requests)
        await ask(client, [user("alone")])
    assert [len(one.choices) for one in replies] == [1, 2, 3, 1, 2, 3]
    assert sum(session.sizes) == 13
    assert session.open_branches == 0


async def test_clients_choose_speakers_and_need_the_key():
    async with served(Batches()) as client:
        models = [model.id async for model in client.models.list()]
        assert models == ["run:mine", "critic"]
        as_critic = client.with_options(base_url=f"{client.base_url}critic")
        assert (await ask(as_critic, [user("x")])).choices[0].message.content == "  99 "
        with pytest.raises(openai.AuthenticationError, match="Bearer KEY"):
            await ask(client.with_options(api_key="none"), [user("x")])
        with pytest.raises(openai.NotFoundError, match="accepts no rewards"):
            await client.post("/reward", cast_to=object, body={"value": 1})


async def test_a_broken_conversation_begins_anew():
    session = Batches(ValueError("no template"))
    async with served(session) as client:
        with pytest.raises(openai.APIStatusError, match="no template"):
            await ask(client, [user("x")])
        session.fault = None
        assert (await ask(client, [user("x")])).choices[0].message.content == "  99 "


async def test_a_lost_sampler_is_reported_to_its_owner():
    with pytest.raises(ServiceLost, match="died"):
        async with served(Batches(ServiceLost("died"))) as client:
            with pytest.raises(openai.InternalServerError, match="died"):
                await ask(client, [user("x")])
