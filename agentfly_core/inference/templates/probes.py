"""Short conversations that test whether a template keeps earlier tokens if messages are added."""

from agentfly_core.inference.templates.dialect import SCHEMA
from agentfly_core.inference.templates.model import MessageList, ModelTemplate, reply_tokens
from agentfly_core.records.trajectory import Message, Observation, ToolCall

CALL, ANSWER = ToolCall("f0", {"k0": 'é "1"\n'}), Observation("f0", "99")
USER, NEXT = Message("user", "What is 41+58?"), Message("user", "And then?")
PROBES: dict[str, tuple[MessageList, MessageList]] = {
    "a reply": ([USER, Message("assistant", "99")], [NEXT]),
    "a system message": (
        [Message("system", "Be brief."), USER, Message("assistant", "99")],
        [NEXT],
    ),
    "line breaks": ([Message("user", "\n a\n\n"), Message("assistant", "b\n\nc")], [NEXT]),
    "markup in contents": ([USER, Message("assistant", "99")], [Message("user", "{markup}")]),
    "a call": ([USER, Message("assistant", "", (CALL,))], [ANSWER]),
    "text and a call": ([USER, Message("assistant", "I see.", (CALL,))], [ANSWER]),
    "two calls": ([USER, Message("assistant", "", (CALL, CALL))], [ANSWER, ANSWER]),
    "reasoning": ([USER, Message("assistant", "99", reasoning="41+58")], [NEXT]),
    "reasoning and a call": (
        [USER, Message("assistant", "", (CALL,), reasoning="41+58")],
        [ANSWER],
    ),
    "an answer after a call": (
        [USER, Message("assistant", "", (CALL,)), ANSWER, Message("assistant", "99")],
        [NEXT],
    ),
}
"""Conversations by name. Each conversation is a pair: the messages up to and including a reply, and
the messages after this reply.
"""


def table(template: ModelTemplate) -> dict[str, str]:
    """Test whether a template can extend the conversations in the constant PROBES.

    The result contains one of these texts for each conversation:

    - "continues": `extend` appends the new messages to the tokens of the conversation.
    - "opens a context": `extend` returns None, so the whole conversation must be encoded again.
    - "refused: ...": a chat server and training would encode the conversation as different tokens.
    - "impossible: ...": the template raised an error.
    """
    bound = template.bound((SCHEMA,) if template.reads_calls else (), None)
    return {name: _verdict(bound, *probe) for name, probe in PROBES.items()}


def report(template: ModelTemplate) -> list[str]:
    """Describe what a template supports, as lines of text.

    The last lines say whether the template can extend each conversation in the constant PROBES,
    such as "a reply: continues". See `table` for the possible results.
    """
    dialect, calls = template.markup.dialect, template.markup.calls or "unreadable calls"
    tools = calls if dialect.native else "as Hermes text, because the template writes none"
    lines = [f"tools: {tools}", f"reasoning: {dialect.reasoning or 'dropped from earlier replies'}"]
    if dialect.reasoning:
        lines.append("echoes without reasoning: keep it, though other servers write them without")
    if template.history == "kept":
        lines.append(
            "history: kept, so training and serving differ if a server rewrites the history"
        )
    return lines + [f"{name}: {verdict}" for name, verdict in table(template).items()]


def _verdict(template: ModelTemplate, before: MessageList, read: MessageList) -> str:
    markup, reply = "".join(template.markup.stop), before[-1]
    read = [Message("user", markup) if item.content == "{markup}" else item for item in read]
    assert isinstance(reply, Message)
    try:
        if difference := template.difference((*before, *read)):
            return f"refused: {difference}"
        added = template.extend(reply_tokens(template, template.tokenizer, reply), read, before)
    except ValueError as error:
        return f"impossible: {error}"
    return "opens a context" if added is None else "continues"
