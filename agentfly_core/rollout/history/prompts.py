"""Encode the prompt for a speaker's next reply."""

from collections.abc import Sequence
from typing import NamedTuple

from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.records.trajectory import Ending, Message, Observation, Sampled
from agentfly_core.rollout.history import timeline
from agentfly_core.rollout.history.timeline import Reply
from agentfly_core.rollout.rules import Form


class Prompt(NamedTuple):
    """The tokens of a prompt.

    - `tokens`: all tokens of the prompt
    - `opens`: whether the prompt starts a new context. If false, the prompt continues the tokens of
      an earlier reply.
    - `given`: if `opens` is true, all tokens of the prompt. Otherwise, the tokens that follow the
      earlier reply.
    """

    tokens: tuple[int, ...]
    given: tuple[int, ...]
    opens: bool


class SampledReply(NamedTuple):
    """The content of a new reply. The fields have the same meaning as in `timeline.Reply`.

    `given` (prompt tokens) and `sampled` (sampled tokens) are empty for a reply of a chat service,
    because a chat service returns no tokens.
    """

    message: Message
    given: tuple[int, ...] = ()
    sampled: tuple[Sampled, ...] = ()
    opens: bool = False
    limit: Ending | None = None


def prompt_after(
    before: Reply | None, read: Sequence[Message | Observation], form: Form, template: ChatTemplate
) -> Prompt:
    """Return the prompt for the next reply.

    The prompt has all messages up to the reply `before`, and then the messages `read`. If `before`
    is None, the prompt has only the messages `read`. `form` determines the tools and the reasoning
    setting of the prompt. If `before` has the same form, and the template can extend the tokens of
    `before`, the prompt continues these tokens. Otherwise all messages are encoded again.
    """
    history = timeline.messages_of(before)
    if before is not None and before.form == form.key:
        added = template.extend(before.tokens, read, history)
        if added is not None:
            return Prompt((*timeline.tokens_of(before), *added), tuple(added), False)
    given = tuple(template.open((*history, *read), form.tools))
    return Prompt(given, given, True)
