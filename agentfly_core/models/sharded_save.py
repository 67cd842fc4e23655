"""Save weights in several safetensors files at the same time. One file would be slower, because the
kernel allocates memory for the pages of a file one after another.
"""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from pathlib import Path

from huggingface_hub import split_state_dict_into_shards_factory
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

PARTS, SMALLEST, LARGEST = 4, 64 * 2**20, 5 * 10**9


def write(model: PreTrainedModel, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write the configurations, the weights and the index of a model, as `model.save_pretrained`
    does.

    The weights are divided into `PARTS` files of about equal size. If these files would be smaller
    than `SMALLEST` bytes, there are fewer files. If they would be larger than `LARGEST` bytes,
    there are more.
    """
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    saved = revert_weight_conversion(model, dict(weights))
    size = sum(weight.nbytes for weight in saved.values())
    # without comparing the storage of tensors, because weights of ZeRO may be in one buffer
    shards = split_state_dict_into_shards_factory(
        saved,
        get_storage_size=attrgetter("nbytes"),
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=min(LARGEST, max(SMALLEST, -(-size // PARTS))),
    )

    def save(name: str, weights: Sequence[str]) -> None:
        # contiguous, because safetensors refuses other layouts
        part = {weight: saved[weight].contiguous() for weight in weights}
        save_file(part, folder / name, metadata={"format": "pt"})

    with ThreadPoolExecutor(PARTS) as threads:
        list(threads.map(save, shards.filename_to_tensors, shards.filename_to_tensors.values()))
    if shards.is_sharded:
        index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
        text = json.dumps(index, indent=2, sort_keys=True)
        (folder / "model.safetensors.index.json").write_text(f"{text}\n")
