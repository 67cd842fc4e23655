"""Tokenizers of nano models of under 1M parameters, for quickstart and tests."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

POSITIONS = 2048
SPECIAL = PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
FOLDER = Path(__file__).parent / "tokenizers"
"""Byte-level BPEs of 512 tokens, learned from conversations of one kind each."""
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
    "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(recipe: str) -> PreTrainedTokenizerFast:
    """The tokenizer of the model `nano:<recipe>`."""
    return _fast(Tokenizer.from_file(str(FOLDER / f"{recipe}.json")))


def learned(texts: Iterable[str], atoms: str, vocabulary: int) -> PreTrainedTokenizerFast:
    """A byte-level BPE of at most `vocabulary` tokens from texts; matches of `atoms` are single."""
    bpe = Tokenizer(BPE())
    isolated = Split(Regex(atoms), "isolated")
    bpe.pre_tokenizer = Sequence([isolated, ByteLevel(False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return _fast(bpe)


def _fast(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=START, eos_token=END, pad_token=PAD, chat_template=_CHATML
    )
