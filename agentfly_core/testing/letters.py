"""A chat template in which each letter is a token, for tests with handwritten tokens.

    ^u41+58?$^a<calculator expression=41+58>$^t99$^a99$

The number of a token is the code point of its letter. `^` opens a message, and the next letter is
the message's role. `$` ends a message and is the stop token. In texts of users and tools, `_`
replaces `^` and `$`. A call is written as `<tool key=text key:json>`, with the JSON
percent-encoded.
"""

import json
import re
from collections.abc import Sequence
from urllib.parse import quote, unquote

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.records.trajectory import BadCall, Message, Observation, ToolCall, Trajectory
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import before_stop, clip

STOP = ord("$")
_CALL = re.compile(r"<([^<>]*)(>?)")


def encode(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def decode(tokens: Sequence[int]) -> str:
    return "".join(map(chr, tokens))


def call_text(call: ToolCall) -> str:
    pairs = [f"{name}:{quote(json.dumps(value))}" for name, value in call.arguments.items()]
    return f"<{' '.join([call.name, *pairs])}>"


def as_letters(trajectory: Trajectory) -> str:
    """Return all tokens of a trajectory as text, with one letter for each token."""
    spans = ((turn.given.tokens, *(s.tokens for s in turn.sampled)) for turn in trajectory.turns)
    return "".join(decode(tokens) for turn in spans for tokens in turn)


def loss_mask(trajectory: Trajectory) -> str:
    """Return a character for each token of a trajectory: `x` if the loss uses it, else `.`."""
    return "".join(
        "." * len(turn.given.tokens)
        + "".join(
            ".x"[trajectory.trains(turn) and span.trained] * len(span.tokens)
            for span in turn.sampled
        )
        for turn in trajectory.turns
    )


class Letters:
    """A chat template for tests, in which each letter is a token.

    For example, `^u41+58?$` is a message of the user. The docstring of the module describes the
    format.
    """

    stop_tokens = (STOP,)

    def open(
        self, messages: Sequence[Message | Observation], tools: Sequence[ToolSchema]
    ) -> tuple[int, ...]:
        return encode("".join(map(_written, messages)) + "^a")

    def extend(
        self,
        reply: Sequence[int],
        read: Sequence[Message | Observation],
        before: Sequence[Message | Observation] = (),
    ) -> tuple[int, ...]:
        end = "" if reply[-1] == STOP else "$"
        return encode(end + "".join(map(_written, read)) + "^a")

    def fit(self, text: str, tokens: int) -> str:
        return clip(text, tokens)

    def parse(self, reply: Sequence[int], stop: Sequence[str] = ()) -> Message:
        text = before_stop(decode(reply).removesuffix("$"), stop)
        calls: list[ToolCall | BadCall] = []
        for call, closed in _CALL.findall(text):
            if not closed:
                calls.append(BadCall(call, "> is missing"))
                continue
            name, *pairs = call.split()
            arguments: dict[str, JSON] = {}
            for pair in pairs:
                key, sign, value = re.split("([=:])", pair, maxsplit=1)
                arguments[key] = value if sign == "=" else json.loads(unquote(value))
            calls.append(ToolCall(name, arguments))
        return Message("assistant", _CALL.sub("", text), tuple(calls))


def _written(item: Message | Observation) -> str:
    role = "t" if isinstance(item, Observation) else item.role[0]
    return f"^{role}{item.content.replace('^', '_').replace('$', '_')}$"
