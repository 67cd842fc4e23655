"""A nano model whose tokens are learned from conversations on training problems."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from agentfly_core.models.nano import POSITIONS, SPECIAL, learned

Pieces = Sequence[str]
"""Its pieces as they are encoded: `("user\\nWhat is 41+58?", "\\n", "assistant\\n", ...)`."""
VOCABULARY = 1024
EVERYWHERE = 0.95
"""A word in this share of the conversations belongs to their form, not to what they are about."""
_ALPHABET = 256
_WORD = r"[^\W\d]+"


def make(
    conversations: Sequence[Pieces],
    atoms: Sequence[str],
    longest: int,
    folder: Path,
    dtype: str,
) -> None:
    """Write an untrained model for contexts of `longest` tokens with a learned tokenizer.

    The bytes are always the same. Raises ValueError as `tokenizer`.
    """
    from agentfly_core.models.untrained import write_untrained  # loads torch, which takes seconds

    nano_tokenizer = tokenizer(conversations, atoms)
    write_untrained(nano_tokenizer, folder, dtype, max(POSITIONS, longest))


def tokenizer(conversations: Sequence[Pieces], atoms: Sequence[str]) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most VOCABULARY tokens.

    Digits, matches of `atoms` and, while there is room, words are single tokens, so that they can
    be copied. Only shared forms, such as a call's markup, are longer tokens. Raises ValueError for
    invalid regular expressions.
    """
    texts = [piece for conversation in conversations for piece in conversation]
    starts, ends = r"(?<![^\W\d])", r"(?![^\W\d])"
    # the form: words of nearly every conversation, the longest tried first
    counts = Counter(w for pieces in conversations for w in {*re.findall(_WORD, " ".join(pieces))})
    needed = math.ceil(EVERYWHERE * len(conversations))
    words = sorted(word for word, count in counts.items() if count >= needed)
    form = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    others = f"(?!(?:{form}){ends})" if form else ""
    alone = [*(f"(?:{atom})" for atom in atoms), r"\d", f"{starts}{others}{_WORD}"]
    try:
        return learned(texts, "|".join(alone), VOCABULARY)
    except Exception as error:  # a bare one is what the tokenizers library raises
        if not atoms:
            raise
        raise ValueError(
            f"nano.atoms: got {list(atoms)}, expected regular expressions: {error}"
        ) from error


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One whose tokens are bytes, and ChatML's: what is written with it can be read back whole."""
    return learned([], r"\d", _ALPHABET + len(SPECIAL))


def pieces(tokenizer: PreTrainedTokenizerBase, spans: Iterable[Sequence[int]]) -> Pieces:
    """The text of spans of tokens, cut at special tokens."""
    cut = re.compile("|".join(map(re.escape, SPECIAL)))
    texts = (str(tokenizer.decode(list(span), skip_special_tokens=False)) for span in spans)
    return [piece for text in texts for piece in cut.split(text) if piece]
