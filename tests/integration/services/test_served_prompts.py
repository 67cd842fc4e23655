"""Training equals serving: prompts of a thinking model have the tokens that vLLM gives to the same
messages.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest

from agentfly_core import tool
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.parts import AgentPart
from agentfly_core.config.site import Site
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.model import ModelTemplate, writer
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.inference.vllm_server import SERVED, launch
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    ToolCall,
    Trajectory,
    Turn,
)
from agentfly_core.rollout.episode import Episode
from agentfly_core.system.service import supervised
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec
from tests.support.chat_templates import WORDS, some_text, tokenizer_of
from tests.support.taught_model import rows_of, stored
from tests.support.vllm_logprobs import client_of, logprobs_of

pytestmark = pytest.mark.long
QWEN3 = tokenizer_of("qwen3")
TEMPLATE = ModelTemplate(QWEN3)
EPISODES, SHARD = 200, 25
FEW = ("sum", " of", " two", " 99")
SITE = Site(sampler="vllm", vllm_memory_gib=0.125, concurrency=32)


@tool
async def search(text: str) -> str:
    """Find a page.

    Args:
        text: Words of the page.
    """
    return f"About {text}: 99."


async def asks_three_times(episode: Episode) -> Ending:
    """Three questions; calls are answered up to twice before the next one."""
    for question in (*episode.opening, Message("user", "And then?"), Message("user", "Sure?")):
        reply = await episode.reply(question)
        for _ in range(2):
            if reply.calls:
                reply = await episode.reply(*await episode.call(*reply.calls))
    return Ending.NO_TOOL_CALLS


def writes(words: tuple[str, ...]) -> Callable[[Conversation], Any]:
    """The policy that draws reasoning, and a call or a text, from words."""

    async def policy(conversation: Conversation) -> Message:
        draw = Random(conversation.seed)
        thought = some_text(draw, words).strip() if draw.random() < 0.7 else ""
        if draw.random() < 0.4:
            call = ToolCall("search", {"text": some_text(draw, words)})
            return Message("assistant", "", (call,), reasoning=thought)
        return Message("assistant", some_text(draw, words), reasoning=thought)

    return policy


def scripted(words: tuple[str, ...]) -> Scripted:
    return Scripted(reply_encoder(QWEN3), TEMPLATE.stop_tokens[0], writes(words), writer(TEMPLATE))


def played(sampler: Sampler) -> list[Trajectory]:
    spec = rollout_spec(
        search,
        agent=asks_three_times,
        template=TEMPLATE,
        max_turns=9,
        max_tokens=64,
        max_model_len=1000,
    )
    specs = episode_specs(ADD, chains=EPISODES)
    shards = [specs[begin : begin + SHARD] for begin in range(0, EPISODES, SHARD)]
    episodes = [asyncio.run(play_all(shard, spec, sampler))[0] for shard in shards]
    return list(chain.from_iterable(episodes))


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that imitates scripted episodes of few words."""
    rows = [row for one in played(scripted(FEW)) for row in rows_of(one)]
    return stored(rows, QWEN3, tmp_path_factory.mktemp("taught"))


@pytest.fixture(scope="module")
def server(
    policy: Path,
    service_address: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[httpx.Client]:
    """vLLM with its tokenizer and the chat template, which stop strings need."""
    address = service_address("vllm")
    agent = AgentPart.model_validate({"max_model_len": 1200, "stop": ["never written"]})
    command, environment = launch(address, policy, "float32", agent, SITE)
    log = tmp_path_factory.mktemp("log") / "vllm.log"
    with supervised("vllm", command, environment, address, log, "test-served") as service:
        VLLM(service, "float32", SITE.concurrency).load(policy, 0)
        with client_of(service) as client:
            yield client


def rows(messages: Sequence[Message | Observation]) -> list[dict[str, Any]]:
    """The messages of a client, which sends an unreadable call back as the text that it read."""
    chat: list[dict[str, Any]] = []
    ids: list[str] = []
    for item in messages:
        if isinstance(item, Observation):
            name = ids.pop(0)
            kind = {"role": "tool", "tool_call_id": name} if name else {"role": "user"}
            chat.append({**kind, "content": item.content})
            continue
        bad = [f"<tool_call>\n{c.text}\n</tool_call>" for c in item.calls if isinstance(c, BadCall)]
        chat.append({"role": item.role, "content": "\n".join(filter(None, [item.content, *bad]))})
        ids = [
            f"call-{number}" if isinstance(call, ToolCall) else ""
            for number, call in enumerate(item.calls)
        ]
        if item.reasoning:
            chat[-1]["reasoning"] = item.reasoning
        if calls := [
            {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)}
            for call in item.calls
            if isinstance(call, ToolCall)
        ]:
            named = zip(filter(None, ids), calls, strict=True)
            chat[-1]["tool_calls"] = [
                {"id": name, "type": "function", "function": call} for name, call in named
            ]
    return chat


def request(messages: Sequence[Message | Observation]) -> dict[str, Any]:
    return {"model": SERVED, "messages": rows(messages), "tools": [search.schema.listed]}


def served(server: httpx.Client, messages: Sequence[Message | Observation]) -> list[int]:
    """The tokens of a prompt by vLLM's own rendering."""
    answer = server.post("/tokenize", json=request(messages)).raise_for_status()
    tokens: list[int] = answer.json()["tokens"]
    return tokens


def prompts(trajectory: Trajectory) -> Iterator[tuple[list[Message | Observation], list[int]]]:
    """The messages and the tokens before each reply."""
    messages, contexts = list[Message | Observation](), dict[int, list[int]]()
    for turn in trajectory.turns:
        messages += turn.read
        tokens = contexts.setdefault(turn.context, [])
        tokens += turn.given.tokens
        yield [*messages], [*tokens]
        messages.append(turn.reply)
        tokens += sampled(turn)


def sampled(turn: Turn) -> list[int]:
    return [token for span in turn.sampled for token in span.tokens]


def test_prompts_of_scripted_replies_have_the_tokens_of_the_server(server: httpx.Client) -> None:
    episodes = played(scripted(WORDS))
    turns = [turn for one in episodes for turn in one.turns]
    assert not any(turn.reply.rewritten for turn in turns)
    assert {bool(turn.reply.reasoning) for turn in turns} == {True, False}
    assert sum(bool(turn.reply.calls) for turn in turns) > EPISODES
    pairs = [pair for one in episodes for pair in prompts(one)]
    assert len(pairs) > 4 * EPISODES
    assert [served(server, messages) == tokens for messages, tokens in pairs] == [True] * len(pairs)


def test_a_chat_completion_has_the_prompt_of_tokenize(server: httpx.Client) -> None:
    episodes = played(scripted(WORDS))[:10]
    for messages, tokens in [pair for one in episodes for pair in prompts(one)]:
        wanted = {"max_tokens": 1, "return_token_ids": True, "tool_choice": "none"}
        body = {**request(messages), **wanted}
        answer = server.post("/v1/chat/completions", json=body).raise_for_status().json()
        assert answer["prompt_token_ids"] == tokens


def test_prompts_without_rewritten_replies_equal_the_servers(
    server: httpx.Client, policy: Path
) -> None:
    sampler = TransformersSampler()
    sampler.load(policy, 0)
    episodes = played(sampler)
    replies = [turn.reply for episode in episodes for turn in episode.turns]
    assert sum(bool(reply.reasoning) for reply in replies) > EPISODES
    assert sum(bool(reply.calls) for reply in replies) > EPISODES / 4
    equal, further = 0, len(replies) - EPISODES
    for episode in episodes:
        read = dict[int, int]()
        for number, (messages, tokens) in enumerate(prompts(episode)):
            before = [turn.reply for turn in episode.turns[:number]]
            if not any(reply.rewritten for reply in before):
                assert served(server, messages) == tokens
                equal += bool(before)
                read[episode.turns[number].context] = number
        for number in read.values():
            assert distance(server, episode.turns[: number + 1]) < 1e-4
    assert further > equal > further / 2


def distance(server: httpx.Client, turns: Sequence[Turn]) -> float:
    """The largest distance of the log-probabilities in the context of the last turn from vLLM's."""
    own, tokens = dict[int, float](), list[int]()
    for turn in turns:
        if turn.context == turns[-1].context:
            tokens += turn.given.tokens
            logprobs = [logprob for span in turn.sampled for logprob in span.logprobs]
            own |= {len(tokens) + at: logprob for at, logprob in enumerate(logprobs)}
            tokens += sampled(turn)
    theirs = logprobs_of(server, tokens)
    return max(abs(logprob - theirs[place - 1]) for place, logprob in own.items())
