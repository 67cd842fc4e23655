"""Shared functions of scripted players with deliberate mistakes."""

import random
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Message, Observation, ToolCall
from agentfly_core.system.formats import hashing

Demonstrator = Callable[[Conversation], Awaitable[str]]


def mistake(conversation: Conversation, seed: int, spoilt: float, kinds: Sequence[str]) -> str:
    """Return the name of the deliberate mistake in this episode, or ""."""
    draw = random.Random(hashing.seed(seed, "mistake", conversation.problem.id, conversation.chain))
    return draw.choice(kinds) if draw.random() < spoilt else ""


def another(draw: random.Random, right: str, like: Sequence[str]) -> str:
    """Return a wrong answer of the same form: a number with as many digits, or one of `like`."""
    if not right.isdigit():
        return draw.choice([other for other in like if other != right])
    numbers = range(10 ** (len(right) - 1), 10 ** len(right))
    return str(draw.choice([number for number in numbers if str(number) != right]))


def called(conversation: Conversation) -> list[ToolCall]:
    messages = [message for message in conversation.messages if isinstance(message, Message)]
    return [call for message in messages for call in message.calls if isinstance(call, ToolCall)]


def observed(conversation: Conversation) -> list[str]:
    return [item.content for item in conversation.messages if isinstance(item, Observation)]


def filled(prompt: str, texts: Mapping[str, str], dataset: str) -> tuple[str, dict[str, str]]:
    """Return the name of the template that a prompt was made from, and the values of its fields:
    `("rename", {"old": "amber-mills", ...})`.

    Raises ValueError for a prompt that matches no template in `texts`.
    """
    for kind, text in texts.items():
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[\\w -]+)", re.escape(text))
        if match := re.fullmatch(pattern, prompt):
            return kind, match.groupdict()
    raise ValueError(f"Got {prompt!r}, expected a prompt of {dataset}.")
