"""ChatML with tool calls in the Hermes format. Qwen2.5, SmolLM2 and nano models use it."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.inference.templates.chatml_jinja import jinja_text
from agentfly_core.inference.templates.text_encoder import TextEncoder
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.records.messages import CALL, CALL_END, call_of, reply_text
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import THINK, THOUGHT_END, before_stop

START, END = "<|im_start|>", "<|im_end|>"
_MARK = re.compile(rf"\n?{CALL}|{THINK}")
_SPACE, _DECODER = re.compile(r"\s*"), json.JSONDecoder()
# white space, accents, emoji and digits, because tokenizers treat them differently
_PROBE = " \n a  b\n\n\té 🙂 1234\n"
TOOLS = """# Tools

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
    """Encodes and parses conversations such as

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

    With `show_tools`, the system message lists the tools. A model does not need this list after a
    warm start (supervised fine-tuning on demonstrations). Added tokens such as `<|im_end|>` come
    only from the template and from replies, never from texts of users or tools.

    The constructor raises ValueError if the tokenizer lacks ChatML's special tokens. It also raises
    ValueError if the method `open` and the chat template in the property `jinja` give different
    tokens for a test prompt.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, show_tools: bool = True) -> None:
        self._tokenizer, self._show_tools = tokenizer, show_tools
        self._text = TextEncoder(tokenizer)
        self._text.id_of(START)
        self._end = self._text.id_of(END)
        mark = self._text.mark
        self._before, self._behind, self._listed = mark(START), mark(END), mark(TOOLS)
        self._answer = mark("<tool_response>"), mark("</tool_response>")
        self._header = self._text.encode(f"{self._before}assistant\n")
        # between two marks, because some tokens include the white space around them
        self._after = self._text.encode(f"{self._behind}\n{self._before}")[1:-1]
        self.stop_tokens = (self._end,)
        self._require_served()

    @property
    def jinja(self) -> str:
        """A Jinja chat template for transformers and vLLM that renders the same texts as this
        class.

        The tokens differ from the tokens of this class in two cases:

        - A message contains the text of a special token.
        - One token contains the line break before a reply and the beginning of the reply. The
          tokenizers of the models `nano` and `nano:<recipe>` have such tokens.
        """
        return jinja_text(TOOLS if self._show_tools else None)

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        """Encode a whole prompt, including the header of the next reply."""
        system = [m.content for m in messages[:1] if isinstance(m, Message) and m.role == "system"]
        conversation = messages[len(system) :]
        if tools and self._show_tools:
            signatures = "\n".join(json.dumps(tool.listed, ensure_ascii=False) for tool in tools)
            system.append(self._listed.format(signatures=signatures))
        text = "\n\n".join(filter(None, system))
        opening = self._block("system", text) if text else ()
        return (*opening, *self._read(conversation), *self._header)

    def extend(
        self,
        reply: Sequence[int],
        read: Sequence[Message | Observation],
        before: Sequence[Message | Observation] = (),
    ) -> tuple[int, ...]:
        """Encode the messages in `read`, which follow the tokens of `reply`.

        `before` contains all messages up to and including the reply; see `ChatTemplate.extend`.
        """
        ended = bool(reply) and reply[-1] == self._end
        return (*(() if ended else (self._end,)), *self._after, *self._read(read), *self._header)

    def fit(self, text: str, tokens: int) -> str:
        """Shorten a text to at most `tokens` tokens: the middle of the text is replaced by
        `[... N bytes omitted ...]`.
        """
        return self._text.fit(text, tokens)

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        """Parse a reply. The text ends before the first occurrence of a string in `stop`.

        Tool calls within the reasoning are ignored. Malformed calls become BadCall.
        """
        tokens = reply[:-1] if reply and reply[-1] == self._end else reply
        text = before_stop(self._text.decode(tokens), stop)
        calls, content, end = list[ToolCall | BadCall](), "", 0
        for begin, behind, call in hermes_calls(text):
            content, end = content + text[end:begin], behind
            calls.append(call)
        message = Message("assistant", content + text[end:], tuple(calls))
        return replace(message, rewritten=self._reply(message) != tuple(tokens))

    def _read(self, messages: Sequence[Message | Observation]) -> Iterator[int]:
        opening, closing = self._answer
        for _, neighbours in groupby(messages, type):
            run = list(neighbours)
            answers = [
                f"{opening}\n{item.content}\n{closing}"
                for item in run
                if isinstance(item, Observation)
            ]
            if answers:
                yield from self._block("user", "\n".join(answers))
            for message in (item for item in run if isinstance(item, Message)):
                if message.role == "assistant":
                    yield from (*self._header, *self._reply(message), self._end, *self._after)
                else:
                    yield from self._block(message.role, message.content)

    def _block(self, role: str, text: str) -> tuple[int, ...]:
        """Encode a message between the added tokens `<|im_start|>` and `<|im_end|>`."""
        encoded = self._text.encode(f"{self._before}{role}\n{text}{self._behind}")
        return (*encoded, *self._after)

    def _reply(self, message: Message) -> tuple[int, ...]:
        """Return the tokens of a reply without its header.

        An encoder made by `reply_encoder` gives the same tokens for the text of the reply.
        """
        text = self._text.mark(reply_text(message), special=False)
        whole = self._text.encode(f"{self._before}assistant\n{text}{self._behind}")[:-1]
        size = len(self._header)
        return whole[size:] if whole[:size] == self._header else self._text.encode(text)

    def _require_served(self) -> None:
        """Raise ValueError if `open` and the template `jinja` encode a test chat differently."""
        read = (Message("system", _PROBE), Message("user", _PROBE), Observation("probe", _PROBE))
        roles = ("system", "user", "tool")
        served = self._tokenizer.apply_chat_template(
            [{"role": role, "content": _PROBE} for role in roles],
            chat_template=self.jinja,
            add_generation_prompt=True,
            return_dict=False,
        )
        trained = self.open(read, ())
        if list(trained) != served:
            raise ValueError(
                f"The Hermes template turns a chat into {len(served)} tokens on a chat server, but "
                f"{len(trained)} tokens in training with this tokenizer. Choose another model, or "
                "write a template for this model."
            )


def hermes_calls(text: str) -> Iterator[tuple[int, int, ToolCall | BadCall]]:
    """Yield the tool calls in a reply, except calls within the reasoning.

    Each item contains the index of the call's first character, the index after its last character,
    and the call.
    """
    at, first, last = 0, len(text) - len(text.lstrip()), text.rfind(THOUGHT_END)
    while mark := _MARK.search(text, at):
        if mark[0] == THINK:
            # reasoning without an end mark counts only at the beginning of the reply
            at = len(text) if mark.start() == first else mark.end()
            if mark.start() < last:
                at = text.find(THOUGHT_END, mark.end()) + len(THOUGHT_END)
            continue
        closed = text.find(CALL_END, end_of_json(text, mark.end()))
        body = text[mark.end() : closed if closed >= 0 else len(text)]
        at = closed + len(CALL_END) if closed >= 0 else len(text)
        yield mark.start(), at, _call(body.strip(), closed >= 0)


def end_of_json(text: str, begin: int) -> int:
    """Return the index after the JSON value that begins at index `begin`.

    Returns `begin` if the text at this index is not a JSON value.
    """
    space = _SPACE.match(text, begin)
    assert space
    try:
        return _DECODER.raw_decode(text, space.end())[1]
    except (ValueError, RecursionError):
        return begin


def _call(text: str, closed: bool) -> ToolCall | BadCall:
    if not closed:
        return BadCall(text, f"{CALL_END} is missing")
    try:
        return call_of(strict_json.parse(text))
    except ValueError as error:
        return BadCall(text, str(error))
