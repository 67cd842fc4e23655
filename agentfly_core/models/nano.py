"""Tokenizers of the models `nano:<recipe>` of under 1M parameters, for quickstart and tests."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast

from agentfly_core.datasets.powers import EXPONENTS, NUMBERS
from agentfly_core.datasets.shop import COLOURS, COUNTS, THINGS
from agentfly_core.records.messages import call_text

VOCABULARY = 512
POSITIONS = 2048
SPECIAL = PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] "
    "}}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Recipe:
    """Pieces of a conversation to learn tokens from, and single tokens as a regular expression."""

    conversation: Callable[[random.Random], Iterator[str]]
    atoms: str


def _sums(draw: random.Random) -> Iterator[str]:
    expression = f"{draw.randint(10, 99)}{draw.choice('+-*')}{draw.randint(10, 99)}"
    yield f"user\nWhat is {expression}?"
    yield call_text("calculator", expression=expression)
    yield _answered(str(draw.randint(-89, 9801)))
    yield call_text("answer", answer=str(draw.randint(-89, 9801)))


def _shopping(draw: random.Random) -> Iterator[str]:
    name = f"{draw.choice(COLOURS)} {draw.choice(THINGS)}"
    key, count = str(draw.randint(10, 99)), draw.choice(COUNTS)
    yield f"user\nBuy {count} {name} and {count} {name}."
    yield call_text("search", words=name)
    yield _answered(json.dumps({key: name}))
    yield call_text("add_to_cart", key=key, count=count)
    yield _answered(json.dumps({key: count, str(99 - count): count}))
    yield _answered(f"No product has the key '{key}'.")
    yield call_text("checkout")
    yield "Done."


def _programming(draw: random.Random) -> Iterator[str]:
    exponent, first, bound = draw.choice(EXPONENTS), draw.choice(NUMBERS), draw.choice(NUMBERS)
    yield f"user\nAdd up i**{exponent} for i from {first}, below {bound}."
    yield call_text("python", code=f"print(sum(i**{exponent} for i in range({first}, {bound})))")
    yield _answered(str(draw.randint(0, 9_999_999)))
    yield _answered("The program printed nothing.")
    yield call_text("answer", answer=str(draw.randint(0, 9_999_999)))


RECIPES = {
    "calculator": Recipe(_sums, r"[0-9+*-]"),
    "python": Recipe(_programming, r"[0-9]"),
    "shop": Recipe(_shopping, rf"[0-9]|\b(?:{'|'.join(COLOURS + THINGS)})\b"),
}


def tokenizer(recipe: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a recipe, the same each time."""
    draw, chosen = random.Random(0), RECIPES[recipe]
    texts = (text for _ in range(1000) for text in ("assistant\n", *chosen.conversation(draw)))
    return learned(texts, chosen.atoms, VOCABULARY)


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
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=START, eos_token=END, pad_token=PAD, chat_template=_CHATML
    )


def _answered(text: str) -> str:
    return f"user\n<tool_response>\n{text}\n</tool_response>"
