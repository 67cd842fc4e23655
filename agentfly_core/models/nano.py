"""Language models of under 1M parameters made from a recipe, for the quickstart and for tests; ChatML, no download."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
from tokenizers.trainers import BpeTrainer
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentfly_core.models.pretrained import write
from agentfly_core.parts import did_you_mean

VOCABULARY = 384
SPECIAL = PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CALL = '<tool_call>\n{{"name": "{}", "arguments": {{"{}": "{}"}}}}\n</tool_call>'
_RESPONSE = "user\n<tool_response>\n{}\n</tool_response>"


def calculator(draw: random.Random) -> Iterator[str]:
    """Pieces of one conversation in which sums are worked out by a calculator."""
    expression = f"{draw.randint(10, 99)}{draw.choice('+-*')}{draw.randint(10, 99)}"
    yield f"user\nWhat is {expression}?"
    yield "assistant\n"
    yield _CALL.format("calculator", "expression", expression)
    yield _RESPONSE.format(draw.randint(-89, 9801))
    yield _CALL.format("answer", "answer", draw.randint(-89, 9801))


RECIPES: Mapping[str, Callable[[random.Random], Iterator[str]]] = {"calculator": calculator}


def make(recipe: str, folder: Path, dtype: str) -> None:
    """Write an untrained model and its tokenizer into `folder`, the same bytes each time.

    A Llama of 3 layers, 128 wide, with 2 heads of 64 (a size that vLLM has on CPU), and a byte-level BPE of at most 384
    tokens in which digits and operators stand alone. Raises ValueError for an unknown recipe.
    """
    if recipe not in RECIPES:
        raise ValueError(f"There is no nano model {recipe!r}.{did_you_mean(recipe, list(RECIPES))}")
    tokenizer = _tokenizer(RECIPES[recipe])
    model = _model(len(tokenizer))
    write(model.to(getattr(torch, dtype)), tokenizer, folder)


def _tokenizer(recipe: Callable[[random.Random], Iterator[str]]) -> PreTrainedTokenizerFast:
    draw = random.Random(0)
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer = Sequence([Split(Regex(r"[0-9+*-]"), "isolated"), ByteLevel(False, use_regex=False)])
    bpe.decoder = decoders.ByteLevel()
    trainer = BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator((text for _ in range(1000) for text in recipe(draw)), trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe, bos_token=START, eos_token=END, pad_token=PAD, chat_template=_CHATML
    )


def _model(vocabulary: int) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=SPECIAL.index(END),
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(config)  # type: ignore[no-untyped-call]
