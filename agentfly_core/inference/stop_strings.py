"""Find stop strings in a reply that is decoded token by token, as in vLLM."""

import functools
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream
from transformers import AutoTokenizer, PreTrainedTokenizerFast

INVALID_PREFIX = "Invalid prefix encountered"


class ReplyText:
    """The end of a reply's text, in which stop strings are searched.

        text = ReplyText(tokenizer, prompt=(1, 87, 203, 4), stop=("Observation:",))
        text.stops_at(523)  # " Observ": False
        text.stops_at(1131)  # "ation:\\n": True

    Special tokens count as their text. A character that consists of several tokens counts once its
    last token is there.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], stop: Sequence[str]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._stream = DecodeStream(ids=list(prompt), skip_special_tokens=False)
        self._end = ""
        # a stop string may begin in earlier tokens
        self._kept = max(map(len, stop)) - 1

    def stops_at(self, token: int) -> bool:
        """Whether this next token completes a stop string."""
        text = self._end + self._text_of(token)
        self._end = text[max(0, len(text) - self._kept) :]
        return any(one in text for one in self._stop)

    def _text_of(self, token: int) -> str:
        try:
            return self._stream.step(self._tokenizer, token) or ""
        except Exception as error:  # the type of the tokenizers library
            # with this token, earlier tokens decode to another text: restart, as vLLM does
            if not str(error).startswith(INVALID_PREFIX):
                raise
            self._stream = DecodeStream(skip_special_tokens=False)
            return self._stream.step(self._tokenizer, token) or ""


@functools.lru_cache(maxsize=4)
def fast_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer of a model's directory. Templates refuse tokenizers of other libraries."""
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer.backend_tokenizer
