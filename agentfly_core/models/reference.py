"""Turns a model reference into a local directory of safetensors and tokenizer files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.config.reference import (
    HubModel,
    LocalModel,
    NanoModel,
    PackagedModel,
    model_reference,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def materialise(reference: str, folder: Path, dtype: str) -> None:
    """Write config.json, model.safetensors and tokenizer files of `reference` into `folder`.

    A reference is `nano:<recipe>` (the same bytes each time), `package:<name>` (a model inside a
    Python package), a local directory, or a Hugging Face id, with `@revision` if wanted. `dtype` is
    "float32" or "bfloat16". Raises ValueError for a reference that names no model.
    """
    match model_reference(reference):
        case NanoModel(recipe):
            from agentfly_core.models import nano

            nano.make(recipe, folder, dtype)
        case PackagedModel(name):
            from agentfly_core.models import pretrained

            pretrained.make_packaged(name, folder, dtype)
        case HubModel() | LocalModel() as model:
            from agentfly_core.models import pretrained

            pretrained.make(model, folder, dtype)
        case _:
            raise ValueError(f"Got {reference!r}, expected a model with weights of its own.")


def tokenizer(reference: str) -> PreTrainedTokenizerBase:
    """The tokenizer of `reference`, without its weights; raises ValueError as `materialise`."""
    match model_reference(reference):
        case NanoModel(recipe):
            from agentfly_core.models import nano

            return nano.tokenizer(recipe)
        case PackagedModel(name):
            from agentfly_core.models import pretrained

            return pretrained.packaged_tokenizer(name)
        case HubModel() | LocalModel() as model:
            from agentfly_core.models import pretrained

            return pretrained.tokenizer(model)
    raise ValueError(f"Got {reference!r}, expected a model with weights of its own.")
