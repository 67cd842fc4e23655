"""Models from a local directory or from the Hugging Face hub."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from agentfly_core.formats.text import sentence
from agentfly_core.models import probe
from agentfly_core.models.known import refuse_adapter


def make(reference: str, folder: Path, dtype: str) -> None:
    """Write the model of a local directory or of a hub id (`Qwen/Qwen2.5-3B-Instruct@main`) into
    `folder`.

    Raises ValueError when there is no such model, its safetensors are missing or damaged, or it
    is an adapter.
    """
    found, source = tokenizer(reference), _source(reference)
    try:
        model = AutoModelForCausalLM.from_pretrained(
            **source, dtype=getattr(torch, dtype), use_safetensors=True, trust_remote_code=False
        )
    except SafetensorError as error:
        # which file of a model from the hub it is, only the hub's cache knows
        unreadable = []
        for path in sorted(Path(source["pretrained_model_name_or_path"]).glob("*.safetensors")):
            try:
                with safe_open(path, "np"):
                    pass
            except SafetensorError:
                unreadable.append(str(path))
        told = (
            f"Cannot load the model {reference!r}: {', '.join(unreadable) or 'one of its files'} "
            f"is no whole safetensors file ({error}). Download or copy it again; one from the hub "
            "lies in its cache, see `hf cache`"
        )
        raise ValueError(sentence(told)) from error
    except (OSError, ValueError) as error:
        raise ValueError(_not_there(reference, error)) from error
    write(model, found, folder)


def tokenizer(reference: str) -> PreTrainedTokenizerBase:
    """The tokenizer of the same, without the weights; raises ValueError when there is none."""
    refuse_adapter(Path(reference))
    try:
        found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            **_source(reference), trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise ValueError(_not_there(reference, error)) from error
    return found


def _source(reference: str) -> dict[str, str]:
    name, _, revision = (
        (reference, "", "") if os.path.isdir(reference) else reference.partition("@")
    )
    return {"pretrained_model_name_or_path": name, "revision": revision or "main"}


def _not_there(reference: str, error: Exception) -> str:
    return (
        f"Cannot load the model {reference!r}: {sentence(str(error))} Expected nano:<recipe>, "
        "package:<name>, a directory with config.json, *.safetensors and tokenizer files, or a "
        "Hugging Face id."
    )


def write(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a model as one safetensors file with its tokenizer and its probe."""
    logging.disable_progress_bar()
    model.save_pretrained(folder, max_shard_size="1TB")
    tokenizer.save_pretrained(folder)
    model.eval()
    probe.write(folder, model.config.vocab_size, probe.of_model(model))
