"""Render conversations with the tokenizer's own Jinja template, as text or as tokens."""

import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, Self

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.chatml import TOOLS
from agentfly_core.inference.templates.contents import HiddenTokens
from agentfly_core.inference.templates.text_encoder import TextEncoder
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.records.messages import reply_text
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.json_value import JSON

ChatRows = list[dict[str, Any]]
"""Messages as JSON objects, in the format of OpenAI's API."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The forms of messages that a chat template can write.

    - `reasoning`: the key under which a message contains its reasoning, or "" if the template
      writes no reasoning of earlier replies
    - `native`: whether the template can write tools, calls and tool results. If False, messages
      contain tools and calls as text in the Hermes format.
    - `arguments_as_text`: whether the arguments of a call must be a JSON text instead of an object
    - `empty`: the content of a reply that consists only of calls
    - `answers_as_user`: whether tool results are sent as user messages, in the Hermes format
    - `alternates`: whether adjacent user messages must be joined
    - `system`: whether system messages are supported
    - `several_calls`: whether a reply may contain several calls
    """

    reasoning: str = ""
    native: bool = True
    arguments_as_text: bool = False
    empty: str | None = ""
    answers_as_user: bool = False
    alternates: bool = False
    system: bool = True
    several_calls: bool = True


class JinjaRenderer:
    """Renders messages with a tokenizer's chat template. `variables` are passed to the template.

    The content of a message never becomes markup of the template.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, variables: Mapping[str, Any], dialect: Dialect
    ) -> None:
        self._tokenizer, self._variables, self.dialect = tokenizer, variables, dialect
        self.encoder = TextEncoder(tokenizer)
        self.contents = HiddenTokens(self.encoder.markup)

    def with_variables(self, variables: Mapping[str, Any]) -> Self:
        """Return a copy of this renderer that passes further variables to the template."""
        return type(self)(self._tokenizer, {**self._variables, **variables}, self.dialect)

    def text(
        self,
        messages: Sequence[Message | Observation],
        tools: Sequence[ToolSchema],
        prompt: bool = True,
    ) -> str:
        """Render messages as text. With `prompt`, the text ends with the header of the next reply.

        If the content of a message has names of added tokens, such as `<|im_end|>`, the rendered
        text has placeholders for these names; see HiddenTokens.
        """
        hidden = [self.contents.hide_message(item) for item in map(with_ids, messages)]
        chat, listed = self._request(hidden, [self.contents.hide(tool.listed) for tool in tools])
        return self.render(chat, listed, prompt)

    def difference(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> str:
        """Compare the tokens of the same prompt in training and on a chat server.

        Return a description of the first token that differs, or "" if all tokens are equal.

        The result is also "", without a comparison, if the content of a message contains the name
        of an added token, such as `<|im_end|>`. A chat server would turn this name into the token
        itself.
        """
        if any(self.encoder.markup_in(item.content) for item in messages):
            return ""
        chat, listed = self._request([*map(with_ids, messages)], [tool.listed for tool in tools])
        text = self.render(chat, listed, prompt=True)
        served = self._tokenizer.encode(text, add_special_tokens=False)
        pairs = zip_longest(self.tokens(self.text(messages, tools)), served, fillvalue=0)
        for place, pair in enumerate(pairs):
            if pair[0] != pair[1]:
                own, other = (self._tokenizer.convert_ids_to_tokens(token) for token in pair)
                return f"token {place} is {own!r} in training, {other!r} on a chat server"
        return ""

    def render(
        self, chat: ChatRows, tools: Sequence[dict[str, JSON]] = (), prompt: bool = False
    ) -> str:
        """Render a chat with the template, and return the text.

        With `prompt`, the template appends the header of the next reply (`add_generation_prompt`).
        Raises ValueError if the template refuses the messages.
        """
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    chat,
                    tools=[*tools] or None,
                    add_generation_prompt=prompt,
                    tokenize=False,
                    **self._variables,
                )
            )
        except Exception as error:  # a template is a program that may raise any error
            raise ValueError(f"The model's chat template refuses a conversation: {error}") from None

    def tokens(self, text: str) -> tuple[int, ...]:
        """Encode a text that the method `text` has rendered.

        Markup that the template itself has written, such as `<|im_end|>`, is encoded as the added
        tokens of the tokenizer. The same markup in the content of a message is encoded as ordinary
        text.
        """
        return self.encoder.encode(self.contents.show(self.encoder.mark(text)))

    def _request(
        self, messages: Sequence[Message | Observation], listed: list[dict[str, JSON]]
    ) -> tuple[ChatRows, list[dict[str, JSON]]]:
        """Return the messages and the list of tools as they are sent to a chat server."""
        chat = [*self._chat(messages)]
        if not self.dialect.native:
            chat, listed = self._with_list(chat, listed), []
        return (_merged(chat) if self.dialect.alternates else chat), listed

    def _chat(self, messages: Sequence[Message | Observation]) -> Iterator[dict[str, Any]]:
        open_calls = deque[str]()
        for item in messages:
            if isinstance(item, Observation):
                yield self._answer(item, open_calls.popleft() if open_calls else "")
            elif item.role == "assistant":
                # a call that cannot be read is sent as text, so its answer refers to no call id
                open_calls = deque(c.id if isinstance(c, ToolCall) else "" for c in item.calls)
                yield self._reply(item)
            else:
                yield {"role": item.role, "content": item.content}

    def _answer(self, item: Observation, call: str) -> dict[str, Any]:
        if self.dialect.answers_as_user:
            text = f"<tool_response>\n{item.content}\n</tool_response>"
            return {"role": "user", "content": text}
        if not self.dialect.native:
            return {"role": "tool", "content": item.content}
        if not call:
            return {"role": "user", "content": item.content}
        return {"role": "tool", "tool_call_id": call, "name": item.tool, "content": item.content}

    def _reply(self, item: Message) -> dict[str, Any]:
        dialect = self.dialect
        written = (c for c in item.calls if not dialect.native or isinstance(c, BadCall))
        content = reply_text(replace(item, calls=tuple(written)))
        row: dict[str, Any] = {"role": "assistant", "content": content}
        if dialect.reasoning and item.reasoning:
            row[dialect.reasoning] = item.reasoning
        if calls := [
            self._call(call) for call in item.calls if dialect.native and isinstance(call, ToolCall)
        ]:
            row |= {"tool_calls": calls, "content": content or dialect.empty}
        return row

    def _call(self, call: ToolCall) -> dict[str, Any]:
        sent = dict(call.arguments)
        text = json.dumps(sent, ensure_ascii=False) if self.dialect.arguments_as_text else sent
        function = {"name": call.name, "arguments": text}
        return {"id": call.id, "type": "function", "function": function}

    def _with_list(self, chat: ChatRows, listed: Sequence[JSON]) -> ChatRows:
        """Add the list of tools to the system message.

        If no system message exists, one is added. If the template supports no system messages, the
        list is put before the text of the first message.
        """
        if not listed:
            return chat
        signatures = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in listed)
        text, first = TOOLS.format(signatures=signatures), chat[0] if chat else {}
        if first and (first["role"] == "system" or not self.dialect.system):
            parts = (
                [first["content"], text] if first["role"] == "system" else [text, first["content"]]
            )
            return [{**first, "content": "\n\n".join(filter(None, parts))}, *chat[1:]]
        return [{"role": "system", "content": text}, *chat]


def with_ids(item: Message | Observation) -> Message | Observation:
    """Return a copy of a message with an id for each tool call.

    If the model wrote no id, an id with nine characters is derived from the call. Tool results are
    returned unchanged.
    """
    if isinstance(item, Observation):
        return item
    calls = (
        replace(call, id=call.id or _id(number, call)) if isinstance(call, ToolCall) else call
        for number, call in enumerate(item.calls)
    )
    return replace(item, calls=tuple(calls))


def _id(number: int, call: ToolCall) -> str:
    # Mistral's templates require nine letters or digits
    return hashing.short(number, call.name, json.dumps(dict(call.arguments)))[:9]


def common_beginning(first: str, second: str) -> str:
    """Return the longest common prefix of two texts."""
    pairs = zip(first, second, strict=False)
    size = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(first), len(second)))
    return first[:size]


def _merged(chat: ChatRows) -> ChatRows:
    """Join adjacent user messages."""
    merged: ChatRows = []
    for row in chat:
        if merged and row["role"] == "user" == merged[-1]["role"]:
            text = f"{merged[-1]['content']}\n\n{row['content']}"
            merged[-1] = {"role": "user", "content": text}
        else:
            merged.append(row)
    return merged
