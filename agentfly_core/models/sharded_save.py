"""Saving weights as several safetensors files in parallel, since page allocation is slow."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, groupby
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

PARTS, SMALLEST, LARGEST = 4, 64 * 2**20, 5 * 10**9


def write(model: PreTrainedModel, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write configurations, weights and index, as `model.save_pretrained` does.

    Writes at most `PARTS` files of at least `SMALLEST` bytes, or more of about `LARGEST` bytes.
    """
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    parts = list(_divided(revert_weight_conversion(model, dict(weights))))
    count = len(parts)
    names = [f"model-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
    if count == 1:
        names = ["model.safetensors"]
    with ThreadPoolExecutor(PARTS) as threads:
        list(threads.map(_write, parts, (folder / name for name in names)))
    if count > 1:
        places = {weight: name for name, part in zip(names, parts, strict=True) for weight in part}
        size = sum(weight.nbytes for part in parts for weight in part.values())
        text = json.dumps(
            {"metadata": {"total_size": size}, "weight_map": places}, indent=2, sort_keys=True
        )
        (folder / "model.safetensors.index.json").write_text(f"{text}\n")


def _divided(weights: Mapping[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """Parts of about the same size, in the order of weights."""
    sizes = [weight.nbytes for weight in weights.values()]
    total = sum(sizes)
    count = max(1, min(PARTS, total // SMALLEST), -(-total // LARGEST))
    starts = dict(zip(weights, accumulate(sizes, initial=0), strict=False))
    for _, names in groupby(weights, key=lambda name: starts[name] * count // total):
        yield {name: weights[name] for name in names}


def _write(part: Mapping[str, Tensor], path: Path) -> None:
    save_file(
        {name: weight.contiguous() for name, weight in part.items()},
        path,
        metadata={"format": "pt"},
    )
