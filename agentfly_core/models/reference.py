"""Local directories and tokenizers of model references."""

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
    """Write config.json, weights and tokenizer of a reference into `folder`; raises ValueError.

    `reference` is `nano:<recipe>` (the same bytes each time), `package:<name>`, a local directory,
    or a Hugging Face id with an optional `@revision`; `dtype` is "float32" or "bfloat16".
    """
    from agentfly_core.models import nano, pretrained

    match model_reference(reference):
        case NanoModel(recipe):
            pretrained.write_untrained(nano.tokenizer(recipe), folder, dtype, nano.POSITIONS)
        case PackagedModel() | HubModel() | LocalModel() as model:
            pretrained.make(model, folder, dtype)
        case _:
            raise ValueError(f"Got {reference!r}, expected a model with weights of its own.")


def tokenizer(reference: str) -> PreTrainedTokenizerBase:
    """The tokenizer of `reference`, without its weights; raises ValueError as `materialise`."""
    model = model_reference(reference)
    if isinstance(model, NanoModel):
        from agentfly_core.models import nano

        return nano.tokenizer(model.recipe)
    if isinstance(model, PackagedModel | HubModel | LocalModel):
        from agentfly_core.models import pretrained  # loads torch

        return pretrained.tokenizer(model)
    raise ValueError(f"Got {reference!r}, expected a model with weights of its own.")
