"""The model `nano`, with tokens learned from conversations on training problems."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from agentfly_core.models.nano import POSITIONS, SPECIAL, learned

Pieces = Sequence[str]
"""Encoded pieces of a conversation: `("user\\nWhat is 41+58?", "\\n", "assistant\\n", ...)`."""
VOCABULARY = 1024
EVERYWHERE = 0.95
"""Words in this share of the conversations belong to their form, not to their content."""
_ALPHABET = 256
_WORD = r"[^\W\d]+"


def make(
    conversations: Sequence[Pieces],
    atoms: Sequence[str],
    longest: int,
    folder: Path,
    dtype: str,
) -> None:
    """Write an untrained model for contexts of `longest` tokens."""
    from agentfly_core.models.pretrained import write_untrained  # loads torch, which takes seconds

    write_untrained(tokenizer(conversations, atoms), folder, dtype, max(POSITIONS, longest))


def tokenizer(conversations: Sequence[Pieces], atoms: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most VOCABULARY tokens.

    Digits, matches of `atoms` and most words are single tokens, which models copy easily. Only
    shared forms, such as the markup of calls, are longer tokens.
    """
    texts = [piece for conversation in conversations for piece in conversation]
    starts, ends = r"(?<![^\W\d])", r"(?![^\W\d])"
    # words of the form, the longest first
    counts = Counter(w for pieces in conversations for w in {*re.findall(_WORD, " ".join(pieces))})
    needed = math.ceil(EVERYWHERE * len(conversations))
    words = sorted(word for word, count in counts.items() if count >= needed)
    form = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    others = f"(?!(?:{form}){ends})" if form else ""
    alone = [*(f"(?:{atom})" for atom in atoms), r"\d", f"{starts}{others}{_WORD}"]
    return learned(texts, "|".join(alone), VOCABULARY)


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes and the special tokens, which encodes any text reversibly."""
    return learned([], r"\d", _ALPHABET + len(SPECIAL))


def pieces(tokenizer: PreTrainedTokenizerBase, spans: Iterable[Sequence[int]]) -> Pieces:
    """The text of spans of tokens, cut at special tokens."""
    cut = re.compile("|".join(map(re.escape, SPECIAL)))
    texts = (str(tokenizer.decode(list(span), skip_special_tokens=False)) for span in spans)
    return [piece for text in texts for piece in cut.split(text) if piece]
