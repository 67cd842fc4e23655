"""Clients that echo, change and mix their chats at random, against the gateway."""

import asyncio
import json
import random
import re
from collections import Counter
from typing import Any

import aiohttp
import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Message, Problem, Trajectory
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import Episode
from agentfly_core.runs.metrics import CAUSES, history_rewrites
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import Letters, decode
from tests.support.fuzzed_chats import Chats, Item, random_replies, sent
from tests.support.gateway_clients import by_client
from tests.support.recorded_rows import rows

SEED, AT_ONCE = 7, 20
TOOLS = (
    [],
    [{"type": "function", "function": {"name": "calc", "parameters": {"type": "object"}}}],
)


class Reasoning(Letters):
    """Letters in which `{thought}` is reasoning."""

    def parse(self, reply: Any, stop: Any = ()) -> Message:
        text, pattern = decode(reply), re.compile(r"\{([^{}]*)\}?")
        rest = [ord(sign) for sign in pattern.sub("", text)]
        message = super().parse(rest, stop)
        return Message(
            "assistant", message.content, message.calls, reasoning="".join(pattern.findall(text))
        )


class FuzzedClient:
    """A client with a few chats, and the requests that it sends."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.chats = Chats(self.draw)
        examples = ("user", "assistant") if self.draw.random() < 0.3 else ()
        self.opening = [self.chats.read(role, "example", is_example=True) for role in examples]
        self.open: list[tuple[int, list[Item]]] = []

    async def plays(self, client: Any, episode: Episode) -> None:
        url = f"{client.base_url}chat/completions"
        async with aiohttp.ClientSession() as session:
            for _ in range(self.draw.randrange(3, 8)):
                chats = [self._next() for _ in range(self.draw.choice((1, 1, 2, 3)))]
                await asyncio.gather(*(self._request(session, url, *one) for one in chats))

    def _next(self) -> tuple[int, list[Item]]:
        """The next request: a new chat, or a longer, older or changed one."""
        act = self.draw.choice(("new", "longer", "longer", "longer", "older", "edit", "tools"))
        if act == "new" or not self.open:
            return self.draw.randrange(2), [*self.opening, *self._question()]
        tools, chat = self.draw.choice(self.open)
        if act == "older":
            own = [n for n, one in enumerate(chat) if one.role == "assistant"]
            chat = chat[: self.draw.choice(own) + 1]
        if act == "edit":
            chat = self.chats.edited(chat)
        if act == "tools":
            tools = 1 - tools
        return tools, [*chat, *self._answers(chat[-1]), *self._question()]

    def _question(self) -> list[Item]:
        number = self.chats.origins
        system = [self.chats.read("system", "Be\nbrief.")] if self.draw.random() < 0.2 else []
        return [*system, self.chats.read("user", f"{number}?\nplease {number}")]

    def _answers(self, reply: Item) -> list[Item]:
        return [
            self.chats.read("tool", f"\n{self.chats.origins} ", call_id=call["id"])
            for call in reply.calls
        ]

    async def _request(
        self, session: aiohttp.ClientSession, url: str, tools: int, chat: list[Item]
    ) -> None:
        pairs = [sent(item, self.draw) for item in chat]
        question = self.chats.asked([item for _, item in pairs], tools)
        body = {"messages": [message for message, _ in pairs], "logprobs": True}
        body |= {"tools": TOOLS[tools], "n": self.draw.choice((1, 1, 1, 2))}
        body |= {"max_tokens": self.draw.choice((12, 400, 400, 400))}
        async with session.post(url, data=json.dumps(body)) as response:
            completed = await response.json()
            assert response.status == 200, completed
        for choice in completed["choices"]:
            reply = self.chats.replied(chat, tools, question, choice)
            self.open.append((tools, [*chat, reply]))


class Replies:
    """The policy of all clients: random replies by problem."""

    def __init__(self) -> None:
        self.by_problem: dict[str, Any] = {}

    async def __call__(self, conversation: Conversation) -> str:
        name = conversation.problem.id
        replies = self.by_problem.setdefault(name, random_replies(random.Random(name)))
        reply: str = next(replies)
        return reply


async def played(seeds: range) -> list[tuple[FuzzedClient, Trajectory]]:
    clients = {str(seed): FuzzedClient(seed) for seed in seeds}

    async def plays(client: Any, episode: Episode) -> None:
        await clients[episode.problem.id].plays(client, episode)

    spec = rollout_spec(
        agent=by_client(plays),
        max_turns=1000,
        max_model_len=10**6,
        max_tokens=1000,
        template=Reasoning(),
    )
    problems = [Problem(name, "?") for name in clients]
    trajectories, *_ = await play_all(episode_specs(*problems), spec, scripted(Replies()))
    assert [one.error for one in trajectories if one.error] == []
    return [(clients[one.problem.id], one) for one in trajectories]


def assert_recorded(chats: Chats, trajectory: Trajectory) -> Counter[str]:
    """Compare the record with the expected prompts, contexts and causes; returns the causes."""
    recorded = [(decode(given), decode(tokens)) for given, tokens, _ in rows(trajectory)]
    assert Counter(recorded) == Counter((one.prompt, one.reply) for one in chats.expected)

    batch = pack([trajectory])
    trained = [
        decode(row[mask].tolist()) for row, mask in zip(batch.tokens, batch.sampled, strict=True)
    ]
    replies = [one.reply for one in chats.expected]
    assert len("".join(trained)) == len("".join(replies))
    assert all(sum(reply in row for row in trained) == 1 for reply in replies)

    first: dict[int, str] = {}
    for turn in trajectory.turns:
        first.setdefault(turn.context, decode(turn.sampled[0].tokens))
    causes = Counter(one.cause for one in chats.expected if one.cause)
    # other rewrites begin with tokens of earlier replies: their prompts are compared above
    assert {one.reply for one in chats.expected if one.is_whole} <= {*first.values()}
    shares = history_rewrites([trajectory])
    counted = {one: round(shares[f"history_rewrites/{one}"] * len(replies)) for one in CAUSES}
    assert counted == {one: causes[one] for one in CAUSES}
    return causes


async def assert_clients(count: int) -> None:
    causes, continued = Counter[str](), 0
    for first in range(SEED, SEED + count, AT_ONCE):
        for client, trajectory in await played(range(first, first + AT_ONCE)):
            causes += assert_recorded(client.chats, trajectory)
            continued += len(trajectory.turns) - len({one.context for one in trajectory.turns})
    assert {*causes} == {*CAUSES}
    assert min(*causes.values(), continued) > count / 10


async def test_replies_of_40_fuzzed_clients_keep_their_tokens() -> None:
    await assert_clients(40)


@pytest.mark.long
async def test_replies_of_1000_fuzzed_clients_keep_their_tokens() -> None:
    await assert_clients(1000)
