"""The tokens of a prompt, and the reply that is sampled for it."""

from collections.abc import Sequence
from typing import NamedTuple

from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.records.trajectory import Ending, Message, Observation, Sampled
from agentfly_core.rollout.history import timeline
from agentfly_core.rollout.history.timeline import Reply
from agentfly_core.rollout.rules import Form


class Prompt(NamedTuple):
    """The `tokens` of a prompt. `given` is their end, which no earlier turn contains. `opens` is
    true if the prompt does not continue the tokens of an earlier reply but starts a new context.
    """

    tokens: tuple[int, ...]
    given: tuple[int, ...]
    opens: bool


class SampledReply(NamedTuple):
    """The content of a new reply, with the fields of `Reply`; without tokens for a chat service."""

    message: Message
    given: tuple[int, ...] = ()
    sampled: tuple[Sampled, ...] = ()
    opens: bool = False
    limit: Ending | None = None


def prompt_after(
    before: Reply | None, read: Sequence[Message | Observation], form: Form, template: ChatTemplate
) -> Prompt:
    """Return the prompt after the messages `read`. It continues the tokens of the reply `before` if
    the template can extend them.
    """
    history = timeline.messages_of(before)
    if before is not None and before.form == form.key:
        added = template.extend(before.tokens, read, history)
        if added is not None:
            return Prompt((*timeline.tokens_of(before), *added), tuple(added), False)
    given = tuple(template.open((*history, *read), form.tools))
    return Prompt(given, given, True)
