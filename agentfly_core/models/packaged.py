"""Models whose GGUF file ships in a Python package, for machines with a package index alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerBase

from agentfly_core.models.known import PACKAGES, require_package
from agentfly_core.models.pretrained import write


def make(name: str, folder: Path, dtype: str) -> None:
    """Write the model of the package `name` into `folder`; raises ValueError when it is unknown or
    not installed.
    """
    where, file = _file(name)
    model: Any = AutoModelForCausalLM.from_pretrained(
        where, gguf_file=file, dtype=getattr(torch, dtype), trust_remote_code=False
    )
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    write(model, tokenizer(name), folder)


def tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of the package `name`; raises ValueError as `make`."""
    where, file = _file(name)
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        where, gguf_file=file, trust_remote_code=False
    )
    return found


def _file(name: str) -> tuple[Path, str]:
    require_package(name)
    package, file = PACKAGES[name]
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return Path(spec.origin).parent, file
