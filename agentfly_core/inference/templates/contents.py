"""Hide the names of added tokens in messages that a Jinja template renders.

Added tokens are tokens such as `<|im_end|>` that a tokenizer recognizes by their name in a text.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from agentfly_core.inference.templates.text_encoder import one_of
from agentfly_core.records.trajectory import BadCall, Message, Observation

FIRST, ESCAPE = 0x100000, "\U0010fffd"
PLANE = 0x10000
"""The number of code points in a Unicode plane.

Placeholders of added tokens are private characters of Unicode's last plane. If the text of a
message contains such a character, the character is escaped: it is replaced by ESCAPE and the
character whose code point is smaller by PLANE.
"""
_PRIVATE = re.compile("[\U00100000-\U0010ffff]")


class HiddenTokens:
    """Replaces the names of added tokens in message contents by placeholders.

        hidden = HiddenTokens(["<|im_end|>"])
        hidden.show(hidden.hide("a<|im_end|>"))  # "a<|im_end|>"

    Call `hide` before a chat template renders the contents, and `show` on the rendered text.
    Otherwise, names in the contents would become added tokens.
    """

    def __init__(self, added: Collection[str]) -> None:
        self._hidden = {token: chr(FIRST + number) for number, token in enumerate(added)}
        self._shown = {sign: token for token, sign in self._hidden.items()}
        self._tokens = one_of(added)

    def hide(self, value: Any) -> Any:
        """Replace the names of added tokens by placeholders, in all strings and keys of a JSON
        value. The method `show` reverses this.
        """
        if isinstance(value, str):
            # two patterns: a pattern of texts only skips all letters that begin none of them,
            # which matters for the 6,000 added tokens of Gemma
            escaped = _PRIVATE.sub(lambda match: ESCAPE + chr(ord(match[0]) - PLANE), value)
            return self._tokens.sub(lambda match: self._hidden[match[0]], escaped)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(item) for key, item in value.items()}
        return [self.hide(item) for item in value] if isinstance(value, list | tuple) else value

    def hide_message(self, item: Message | Observation) -> Message | Observation:
        """Replace the names of added tokens by placeholders, in the texts and the tool calls of a
        message.
        """
        if isinstance(item, Observation):
            return replace(item, content=self.hide(item.content))
        calls = tuple(
            BadCall(self.hide(call.text), call.fault)
            if isinstance(call, BadCall)
            else replace(call, name=self.hide(call.name), arguments=self.hide(call.arguments))
            for call in item.calls
        )
        content, reasoning = self.hide(item.content), self.hide(item.reasoning)
        return replace(item, content=content, calls=calls, reasoning=reasoning)

    def show(self, text: str) -> str:
        """Reverse `hide`: replace each placeholder in a text by the name of its token."""
        return re.sub(
            f"{ESCAPE}(.)|[\U00100000-\U0010fffc]",
            lambda match: chr(ord(match[1]) + PLANE) if match[1] else self._shown[match[0]],
            text,
            flags=re.DOTALL,
        )
