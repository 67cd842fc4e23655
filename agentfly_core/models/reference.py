"""Turns a model reference into a local directory of safetensors and tokenizer files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def materialise(reference: str, folder: Path, dtype: str) -> None:
    """Write config.json, model.safetensors and tokenizer files of `reference` into the empty
    `folder`.

    A reference is `nano:<recipe>` (the same bytes each time), `package:<name>` (a model inside a
    Python package), a local directory, or a Hugging Face id, with `@revision` if wanted. `dtype` is
    "float32" or "bfloat16". Raises ValueError for a reference that names no model.
    """
    kind, _, name = reference.partition(":")
    if kind == "nano":
        from agentfly_core.models import nano

        nano.make(name, folder, dtype)
    elif kind == "package":
        from agentfly_core.models import pretrained

        pretrained.make_packaged(name, folder, dtype)
    else:
        from agentfly_core.models import pretrained

        pretrained.make(reference, folder, dtype)


def tokenizer(reference: str) -> PreTrainedTokenizerBase:
    """The tokenizer of `reference`, without its weights; raises ValueError as `materialise`."""
    kind, _, name = reference.partition(":")
    if kind == "nano":
        from agentfly_core.models import nano

        return nano.tokenizer(name)
    if kind == "package":
        from agentfly_core.models import pretrained

        return pretrained.packaged_tokenizer(name)
    from agentfly_core.models import pretrained

    return pretrained.tokenizer(reference)
