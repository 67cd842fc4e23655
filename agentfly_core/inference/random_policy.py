"""The policy that knows nothing: a call of a tool drawn at random, each turn."""

from __future__ import annotations

import random

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.random_arguments import Draw, Undrawable
from agentfly_core.inference.scripted import NoReply
from agentfly_core.records.trajectory import Message, ToolCall


async def random_policy(conversation: Conversation) -> str | Message:
    """A call of one of the tools, each as likely, with arguments that fit its schema; without tools
    a few words.

    Texts are words of the conversation, short literals and the examples of the schema. The same
    conversation gets the same reply. Raises NoReply where nothing is found that fits.
    """
    draw = random.Random(conversation.seed)
    words = [word for item in conversation.messages for word in item.content.split()] or ["a"]
    if not conversation.tools:
        return " ".join(draw.choices(words, k=3))
    tool = draw.choice(conversation.tools)
    try:
        arguments = Draw(draw, words).value(tool.parameters)
    except Undrawable as fault:
        raise NoReply(
            f"The policy random finds no call of the tool {tool.name!r}, {fault}. Give the "
            "parameter examples, `Annotated[..., Field(examples=[...])]`, or play a policy of your "
            "own, --policy my_file:policy."
        ) from None
    assert isinstance(arguments, dict)
    return Message("assistant", "", (ToolCall(tool.name, arguments),))
