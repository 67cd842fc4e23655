"""Policies whose replies a test gives."""

from collections.abc import Callable, Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.scripted import Policy


def chained(replies: Callable[[int], Sequence[str]]) -> Policy:
    """The policy that gives `replies(chain)`, one a turn."""

    async def policy(conversation: Conversation) -> str:
        return replies(conversation.chain)[conversation.turn]

    return policy


async def numbered(conversation: Conversation) -> str:
    """The policy whose reply number 3 is `r3`."""
    return f"r{conversation.turn}"
