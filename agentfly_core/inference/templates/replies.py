"""Replies of a model with its own chat template, as messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.call_formats import FORMATS
from agentfly_core.inference.templates.dialect import REASONING_KEYS, Markup
from agentfly_core.records.messages import call_of
from agentfly_core.records.trajectory import BadCall, Message, ToolCall

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Call = ToolCall | BadCall


@dataclass(frozen=True, slots=True)
class ReplyReader:
    """Reads replies after a prompt that ends with `header`, which may have `opened` reasoning.

    The tokenizer's `response_template` is used if it has one and the template writes tools. A reply
    that it refuses, and other tokenizers' replies, are read in the format of `markup`.
    """

    tokenizer: PreTrainedTokenizerBase
    markup: Markup
    header: str
    opened: bool
    tools: Sequence[ToolSchema] = ()

    @property
    def reads_calls(self) -> bool:
        """Whether calls of tools can be read."""
        return bool(self.markup.calls or self._own_template)

    def read(self, text: str) -> Message:
        """The reasoning, text and calls of a reply, wrong calls as BadCall."""
        message = self._by_response_template(text) or self._by_format(text)
        calls = [*message.calls]
        if not self.markup.dialect.several_calls:
            fault = "this model's template writes one call in a reply"
            calls[1:] = [BadCall(str(call), fault) for call in calls[1:]]
        return Message("assistant", message.content, tuple(calls), reasoning=message.reasoning)

    @property
    def _own_template(self) -> Mapping[str, Any] | None:
        native = self.markup.dialect.native
        return getattr(self.tokenizer, "response_template", None) if native else None

    def _by_response_template(self, text: str) -> Message | None:
        """The reply as transformers reads it; None without a template and for refused replies."""
        if not self._own_template:
            return None
        listed: list[Any] = [tool.listed for tool in self.tools]
        try:
            parsed = self.tokenizer.parse_response(text, prefix=self.header, tools=listed)
            calls = [call_of(call["function"]) for call in parsed.get("tool_calls", ())]
        except Exception as error:  # its parsers raise errors of many types
            fault = BadCall(text, f"the model's response_template refuses it: {error}")
            return None if self.markup.calls else Message("assistant", "", (fault,))
        reasoning = next((parsed[key] for key in REASONING_KEYS if key in parsed), "")
        content = str(parsed.get("content") or "")
        return Message("assistant", content, tuple(calls), reasoning=str(reasoning))

    def _by_format(self, text: str) -> Message:
        reasoning, rest = self.markup.marks.split(text, self.opened)
        calls, content, at = list[Call](), "", 0
        if self.markup.calls and self.tools:
            schemas = {tool.name: tool for tool in self.tools}
            for begin, behind, call in FORMATS[self.markup.calls].calls(rest, schemas):
                content, at = content + rest[at:begin].rstrip(), behind
                calls.append(call)
        content += rest[at:].rstrip() if calls else rest[at:]
        return Message("assistant", content, tuple(calls), reasoning=reasoning)
