"""What goes wrong on purpose in demonstrations whose policies act on what they read."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Message, Observation, ToolCall
from agentfly_core.system.formats import hashing


def mistake(conversation: Conversation, seed: int, spoilt: float, kinds: Sequence[str]) -> str:
    """The mistake of this episode, or "" without one."""
    draw = random.Random(hashing.seed(seed, "mistake", conversation.problem.id, conversation.chain))
    return draw.choice(kinds) if draw.random() < spoilt else ""


def another(draw: random.Random, right: str, like: Sequence[str]) -> str:
    """A wrong answer of the right one's form: a number of as many digits, or one of `like`."""
    if not right.isdigit():
        return draw.choice([other for other in like if other != right])
    numbers = range(10 ** (len(right) - 1), 10 ** len(right))
    return str(draw.choice([number for number in numbers if str(number) != right]))


def called(conversation: Conversation) -> list[ToolCall]:
    """What was called so far."""
    messages = [message for message in conversation.messages if isinstance(message, Message)]
    return [call for message in messages for call in message.calls if isinstance(call, ToolCall)]


def observed(conversation: Conversation) -> list[str]:
    """What the tools answered so far."""
    return [item.content for item in conversation.messages if isinstance(item, Observation)]
