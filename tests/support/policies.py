"""Scripted policies for tests."""

from collections.abc import Callable, Sequence
from pathlib import Path

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.models import lora, probe


def chained(replies: Callable[[int], Sequence[str]]) -> ScriptedPolicy:
    """The policy that gives `replies(chain)`, one a turn."""

    async def policy(conversation: Conversation) -> str:
        return replies(conversation.chain)[conversation.turn]

    return policy


async def numbered(conversation: Conversation) -> str:
    """A policy with the reply `r3` in turn 3."""
    return f"r{conversation.turn}"


def probed(policy: Path, base: Path | None = None) -> Path:
    """Write a new probe for a policy with changed weights; return its folder."""
    model = lora.load(policy, base, "float32").eval()
    tokens = probe.tokens_of(base or policy)
    probe.write(policy, tokens, probe.of_model(model, tokens))
    return policy
