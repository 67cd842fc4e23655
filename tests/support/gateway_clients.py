"""Agents that play by OpenAI's client in this process."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

from agentfly_core.gateway.server import served
from agentfly_core.gateway.session import GatewaySession, SpeakerPattern
from agentfly_core.records.trajectory import Ending
from agentfly_core.rollout.episode import Agent, Episode
from tests.support.waiting import LIMIT

Plays = Callable[[AsyncOpenAI, Episode], Awaitable[object]]


def by_client(plays: Plays, speakers: Mapping[str, SpeakerPattern] = {}) -> Agent:
    """The agent that plays an episode with a client of the gateway."""

    async def client_agent(episode: Episode) -> Ending:
        session = GatewaySession(episode, speakers)
        async with (
            served(session) as url,
            AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=LIMIT) as client,
        ):
            await session.result(_played(plays, client, episode), LIMIT)
        return Ending.NO_TOOL_CALLS

    return client_agent


async def _played(plays: Plays, client: AsyncOpenAI, episode: Episode) -> None:
    await plays(client, episode)


async def ask(
    client: AsyncOpenAI, messages: Sequence[Mapping[str, Any]], model: str = "any", **fields: Any
) -> ChatCompletion:
    """A completion of messages."""
    body = {"model": model, "messages": list(messages), **fields}
    completed: ChatCompletion = await client.chat.completions.create(**body)
    return completed


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}
