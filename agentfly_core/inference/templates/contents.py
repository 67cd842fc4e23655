"""Hide added tokens in the contents of messages from a Jinja template."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from agentfly_core.records.trajectory import BadCall, Message, Observation

FIRST, ESCAPE = 0x100000, "\U0010fffd"
PLANE = 0x10000
"""Hidden tokens are private characters of Unicode's last plane; such characters are escaped."""


class HiddenTokens:
    """Replaces added tokens in contents by private characters, and restores them.

    hidden = HiddenTokens(["<|im_end|>"])
    hidden.show(hidden.hide("a<|im_end|>"))  # "a<|im_end|>", which no template wrote
    """

    def __init__(self, added: Collection[str]) -> None:
        self._hidden = {token: chr(FIRST + number) for number, token in enumerate(added)}
        self._shown = {sign: token for token, sign in self._hidden.items()}
        # longest first, because a regex takes the first alternative that fits
        longest_first = sorted(added, key=len, reverse=True)
        self._tokens = re.compile(
            "|".join([*map(re.escape, longest_first), "[\U00100000-\U0010ffff]"])
        )

    def hide(self, value: Any) -> Any:
        """Replace added tokens in all texts and keys of a JSON value by placeholders."""
        if isinstance(value, str):
            return self._tokens.sub(lambda match: self._sign(match[0]), value)
        if isinstance(value, Mapping):
            return {self.hide(key): self.hide(item) for key, item in value.items()}
        return [self.hide(item) for item in value] if isinstance(value, list | tuple) else value

    def hide_message(self, item: Message | Observation) -> Message | Observation:
        """Replace added tokens in a message by placeholders."""
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
        """Restore the hidden tokens of a text."""
        return re.sub(
            f"{ESCAPE}(.)|[\U00100000-\U0010fffc]",
            lambda match: chr(ord(match[1]) + PLANE) if match[1] else self._shown[match[0]],
            text,
            flags=re.DOTALL,
        )

    def _sign(self, text: str) -> str:
        return self._hidden.get(text) or ESCAPE + chr(ord(text) - PLANE)
