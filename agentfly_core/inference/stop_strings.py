"""Find stop strings in a reply whose tokens are decoded one by one, as in vLLM."""

import functools
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

INVALID_PREFIX = "Invalid prefix encountered"


class ReplyText:
    """Finds stop strings in a reply that is decoded token by token.

        text = ReplyText(tokenizer, prompt=(1, 87, 203, 4), stop=("Observation:",))
        text.stops_at(523)  # " Observ": False
        text.stops_at(1131)  # "ation:\\n": True

    Only the last characters of the text are kept, because a stop string may have begun in them.
    Special tokens are part of the text. A character that consists of several tokens is added with
    the last of these tokens.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._stream = DecodeStream(ids=list(prompt), skip_special_tokens=False)
        self._end = ""
        # the number of characters to keep, because a stop string may begin in earlier tokens
        self._kept = max(map(len, stop)) - 1

    def stops_at(self, token: int) -> bool:
        """Add the next token, and return whether it completes a stop string."""
        text = self._end + self._text_of(token)
        self._end = text[max(0, len(text) - self._kept) :]
        return any(one in text for one in self._stop)

    def _text_of(self, token: int) -> str:
        try:
            return self._stream.step(self._tokenizer, token) or ""
        except Exception as error:  # the tokenizers library raises only this type
            # this token changes how earlier tokens are decoded; start again at this token, as vLLM
            # does
            if not str(error).startswith(INVALID_PREFIX):
                raise
            self._stream = DecodeStream(skip_special_tokens=False)
            return self._stream.step(self._tokenizer, token) or ""


@functools.lru_cache(maxsize=4)
def fast_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer in a model directory."""
    return Tokenizer.from_file(str(folder / "tokenizer.json"))
