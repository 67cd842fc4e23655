"""ChatML with the Hermes way of calling tools, as Qwen2.5 was trained on; it fits SmolLM2 and our
nano models alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.formats import strict_json
from agentfly_core.formats.json_value import JSON
from agentfly_core.formats.stop_strings import before_stop
from agentfly_core.formats.text import clip
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall
from agentfly_core.templates.chatml_jinja import jinja_text

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

START, END = "<|im_start|>", "<|im_end|>"
MOST_TOKENS_OF_A_BYTE = 16
"""More than any tokenizer makes: one of Unicode's characters of 3 bytes has a normal form of 33."""
_CALL = re.compile(r"\n?<tool_call>(.*?)(</tool_call>|\Z)", re.DOTALL)
_TOOLS = """# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{signatures}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{{"name": <function-name>, "arguments": <args-json-object>}}
</tool_call>"""


class Hermes:
    """Writes and reads conversations such as

        <|im_start|>user
        What is 41+58?<|im_end|>
        <|im_start|>assistant
        <tool_call>
        {"name": "calculator", "arguments": {"expression": "41+58"}}
        </tool_call><|im_end|>
        <|im_start|>user
        <tool_response>
        99
        </tool_response><|im_end|>
        <|im_start|>assistant

    With `show_tools` the system message lists the tools; a model that was warm-started on its tools
    needs no list. Raises ValueError for a tokenizer without ChatML's two special tokens.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, show_tools: bool = True) -> None:
        self._tokenizer, self._show_tools = tokenizer, show_tools
        self._start, self._end = self._special(START), self._special(END)
        self._header = (self._start, *self._encode("assistant\n"))
        self._after = self._encode("\n")
        self.stop_tokens = (self._end,)

    @property
    def jinja(self) -> str:
        """The same as a chat template of transformers, which vLLM reads, too.

        It renders the same text, and the same tokens where no text holds special tokens and the
        tokenizer joins no line break to the reply that follows it: those of Qwen and SmolLM2 do
        not, those of nano models do.
        """
        return jinja_text(_TOOLS if self._show_tools else None)

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """The whole prompt, up to and including the header of the reply to come."""
        system = [m.content for m in messages[:1] if isinstance(m, Message) and m.role == "system"]
        conversation = messages[len(system) :]
        if tools and self._show_tools:
            signatures = "\n".join(_json(tool.listed) for tool in tools)
            system.append(_TOOLS.format(signatures=signatures))
        text = "\n\n".join(filter(None, system))
        opening = [Message("system", text)] if text else []
        return (*self._read([*opening, *conversation]), *self._header)

    def extend(
        self, reply: Sequence[int], read: Sequence[Message | Observation]
    ) -> tuple[int, ...]:
        """The tokens between the end of `reply` and the start of the next; see ChatTemplate."""
        ended = bool(reply) and reply[-1] == self._end
        return (*(() if ended else (self._end,)), *self._after, *self._read(read), *self._header)

    def fit(self, text: str, tokens: int) -> str:
        """The text, its middle replaced by `[... N bytes omitted ...]` where it would be more than
        `tokens` tokens.
        """
        fitting, kept = text, len(text.encode("utf-8", "replace"))
        if kept * MOST_TOKENS_OF_A_BYTE <= tokens:
            return text
        while kept and (size := len(self._encode(fitting))) > tokens:
            kept = min(kept - 1, kept * tokens // size)
            fitting = clip(text, kept)
        return fitting

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """What the assistant said before a stop string: its text without the calls' markup, and its
        calls, unreadable ones as BadCall.
        """
        said = reply[:-1] if reply and reply[-1] == self._end else reply
        text = str(
            self._tokenizer.decode(
                list(said), skip_special_tokens=False, clean_up_tokenization_spaces=False
            )
        )
        text = before_stop(text, stop)
        calls = tuple(_call(found[1], closed=bool(found[2])) for found in _CALL.finditer(text))
        return Message("assistant", _CALL.sub("", text), calls)

    def _read(self, messages: Sequence[Message | Observation]) -> Iterator[int]:
        for _, neighbours in groupby(messages, type):
            run = list(neighbours)
            answers = [
                f"<tool_response>\n{item.content}\n</tool_response>"
                for item in run
                if isinstance(item, Observation)
            ]
            if answers:
                yield from self._message(Message("user", "\n".join(answers)))
            for message in (item for item in run if isinstance(item, Message)):
                yield from self._message(message)

    def _message(self, message: Message) -> tuple[int, ...]:
        if message.role == "assistant":
            return (*self._header, *self._encode(reply_text(message)), self._end, *self._after)
        text = self._encode(f"{message.role}\n{message.content}")
        return (self._start, *text, self._end, *self._after)

    def _encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text in which special tokens mean nothing; lone surrogates become
        question marks.
        """
        sane = text.encode("utf-8", "replace").decode()
        return tuple(
            self._tokenizer(sane, add_special_tokens=False, split_special_tokens=True).input_ids
        )

    def _special(self, token: str) -> int:
        index = self._tokenizer.convert_tokens_to_ids(token)
        if not isinstance(index, int) or self._tokenizer.convert_ids_to_tokens(index) != token:
            raise ValueError(
                f"The tokenizer has no {token} token; the Hermes template needs a ChatML model."
            )
        return index


def reply_text(reply: Message) -> str:
    """A reply as a model writes it: its text, then its calls."""
    calls = (
        call.text
        if isinstance(call, BadCall)
        else _json({"name": call.name, "arguments": call.arguments})
        for call in reply.calls
    )
    parts = [reply.content, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)]
    return "\n".join(filter(None, parts))


def call_text(name: str, **arguments: JSON) -> str:
    """A reply that is one call: `call_text("answer", answer="99")`."""
    return reply_text(Message("assistant", "", (ToolCall(name, arguments),)))


def _call(text: str, closed: bool) -> ToolCall | BadCall:
    if not closed:
        return BadCall(text.strip(), "</tool_call> is missing")
    try:
        value = strict_json.parse(text)
    except ValueError as error:
        return BadCall(text.strip(), str(error))
    if not isinstance(value, Mapping) or not isinstance(name := value.get("name"), str):
        return BadCall(text.strip(), 'expected an object {"name": <text>, "arguments": <object>}')
    if not isinstance(arguments := value.get("arguments"), Mapping):
        return BadCall(text.strip(), f"expected an object as the arguments of {name}")
    return ToolCall(name, arguments)


def _json(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)
