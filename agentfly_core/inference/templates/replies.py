"""Parse replies of a model that uses its own chat template, and write such replies."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.call_formats import FORMATS
from agentfly_core.inference.templates.dialect import REASONING_KEYS, Markup
from agentfly_core.inference.templates.jinja_renderer import JinjaRenderer, common_beginning
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.records.messages import call_of
from agentfly_core.records.trajectory import BadCall, Message, ToolCall

Call = ToolCall | BadCall
QUESTION = Message("user", "?")
OTHER = "\U0010fffe"
"""A placeholder text for test messages. No template writes this text by itself."""


@dataclass(frozen=True)
class Replies:
    """Parses a model's replies, and writes messages as the model would write them in a reply.

    Replies are parsed with the tokenizer's `response_template`, if the tokenizer has this template
    and the chat template can render tools and calls. Otherwise, or if `response_template` raises an
    error, replies are parsed with the tool-call format `markup.calls`, such as "hermes". If the
    format is unknown (""), a reply that raises such an error becomes a BadCall.
    """

    tokenizer: PreTrainedTokenizerBase
    renderer: JinjaRenderer
    markup: Markup
    tools: Sequence[ToolSchema] = ()

    @property
    def reads_calls(self) -> bool:
        """Whether the tool calls in replies can be parsed."""
        return bool(self.markup.calls or self._response_template)

    def read(self, text: str) -> Message:
        """Parse the reasoning, the text and the tool calls of a reply. Invalid calls become
        BadCall.
        """
        message = self._by_response_template(text) or self._by_format(text)
        calls = [*message.calls]
        if not self.markup.dialect.several_calls:
            fault = "this model's template allows only one tool call in a reply"
            calls[1:] = [BadCall(str(call), fault) for call in calls[1:]]
        return Message("assistant", message.content, tuple(calls), reasoning=message.reasoning)

    def is_thinking(self, text: str) -> bool:
        """Whether the reasoning of a partial reply has begun and has not ended yet."""
        return self.markup.marks.begin(text, self._opened) and self.markup.marks.close not in text

    def reasoning_tokens(self, text: str, reply: Sequence[int]) -> int:
        """Return the number of reasoning tokens of a reply, including the closing tag."""
        marks = self.markup.marks
        if not marks.begin(text, self._opened):
            return 0
        # Compared as token strings: also in byte-level tokens, the ASCII characters of the mark are
        # unchanged. A string is None if the tokenizer lacks the id: models may sample such ids.
        pieces = [piece or "" for piece in self.tokenizer.convert_ids_to_tokens(list(reply))]
        before, mark, _ = "".join(pieces).partition(marks.close)
        ends = accumulate(map(len, pieces))
        return bisect_left([*ends], len(before + mark)) + 1 if mark else len(reply)

    def text(self, message: Message) -> str:
        """Return the text of a reply with its tool calls, as the model writes it after a prompt."""
        return self.renderer.contents.show(self._hidden(message))

    def has_tokens(self, message: Message, tokens: Sequence[int]) -> bool:
        """Whether the template renders a message to these tokens.

        A message without reasoning may be rendered with or without empty reasoning tags: a template
        may write these tags only in the last message.
        """
        text = self._hidden(message)
        empty = "" if message.reasoning else self.markup.marks.joined("", "", self._opened)
        return tuple(tokens) in map(self.renderer.tokens, {text, text.removeprefix(empty)})

    @property
    def _response_template(self) -> Mapping[str, Any] | None:
        own: Mapping[str, Any] | None = self.tokenizer.response_template
        return own if self.markup.dialect.native else None

    def _by_response_template(self, text: str) -> Message | None:
        """Parse a reply with the tokenizer's `response_template`.

        Returns None if the tokenizer has no `response_template`, or if the chat template cannot
        render tools and calls. If `response_template` raises an error, returns
        None if `markup.calls` names a tool-call format, else a message with a BadCall.
        """
        if not self._response_template:
            return None
        listed: list[Any] = [tool.listed for tool in self.tools]
        try:
            parsed = self.tokenizer.parse_response(text, prefix=self._header, tools=listed)
            calls = [call_of(call["function"]) for call in parsed.get("tool_calls", ())]
        except Exception as error:  # parsers of transformers raise errors of many types
            fault = BadCall(text, f"the model's response_template refuses it: {error}")
            return None if self.markup.calls else Message("assistant", "", (fault,))
        reasoning = next((parsed[key] for key in REASONING_KEYS if key in parsed), "")
        content = str(parsed.get("content") or "")
        return Message("assistant", content, tuple(calls), reasoning=str(reasoning))

    def _by_format(self, text: str) -> Message:
        reasoning, rest = self.markup.marks.split(text, self._opened)
        calls, content, at = list[Call](), "", 0
        if self.markup.calls and self.tools:
            schemas = {tool.name: tool for tool in self.tools}
            for begin, behind, call in FORMATS[self.markup.calls].calls(rest, schemas):
                content, at = content + rest[at:begin].rstrip(), behind
                calls.append(call)
        content += rest[at:].rstrip() if calls else rest[at:]
        return Message("assistant", content, tuple(calls), reasoning=reasoning)

    def _hidden(self, message: Message) -> str:
        whole = self._last(message)
        # after the reply, a template may drop a part of the header, such as an empty <think>
        kept = self._prompt if whole.startswith(self._prompt) else self._shared
        marked = self.renderer.encoder.markup_in(whole)
        ends = [at for at, name in marked if name in self.markup.stop]
        end = ends[-1] if ends and ends[-1] >= len(kept) else None
        text = whole[len(kept) : end]
        opened = self._opened and kept != self._prompt and self.markup.marks.close not in text
        if opened or (message.reasoning and not self._writes_reasoning(message)):
            reasoning = self.renderer.contents.hide(message.reasoning)
            return self.markup.marks.joined(reasoning, text, opened)
        return text

    def _writes_reasoning(self, message: Message) -> bool:
        return self.renderer.contents.hide(OTHER) in self._last(replace(message, reasoning=OTHER))

    def _last(self, message: Message) -> str:
        return self.renderer.text([QUESTION, message], self.tools, prompt=False)

    @cached_property
    def _header(self) -> str:
        """The rendered prompt of QUESTION. It ends with the header of the model's reply."""
        return self.renderer.contents.show(self.renderer.text([QUESTION], ()))

    @cached_property
    def _opened(self) -> bool:
        """Whether a prompt already ends with the opening tag of the reasoning."""
        return self._header.rstrip().endswith(self.markup.marks.open.rstrip())

    @cached_property
    def _prompt(self) -> str:
        return self.renderer.text([QUESTION], self.tools)

    @cached_property
    def _shared(self) -> str:
        """The part of a prompt that stays the same when a reply is added to the conversation."""
        reply = Message("assistant", OTHER)
        answered = self.renderer.text([QUESTION, reply], self.tools, prompt=False)
        return common_beginning(self._prompt, answered)
