"""Policies whose replies a test gives."""

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
    """The policy whose reply number 3 is `r3`."""
    return f"r{conversation.turn}"


def probed(policy: Path, base: Path | None = None) -> Path:
    """The folder of a policy whose weights a test has changed, with a probe of these."""
    model = lora.load(policy, base, "float32").eval()
    probe.write(policy, model.config.vocab_size, probe.of_model(model))
    return policy
