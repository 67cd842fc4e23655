"""Load models with a low-rank adapter (LoRA, arXiv 2106.09685), and add new adapters with peft."""

from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from agentfly_core.config.experiment import Adapter
from agentfly_core.models import pretrained
from agentfly_core.system.formats.text import did_you_mean


def load(folder: Path, base: Path | None, dtype: str) -> PreTrainedModel:
    """Load the model of a policy from the folder `folder`.

    If the policy is an adapter, `base` is the folder of its base model. The adapter is added to the
    base model, and only the weights of the adapter are trainable. Raises FileNotFoundError if
    config.json is missing. Raises ValueError if weights are missing or do not belong to the model.
    """
    whole = base or folder
    if not (whole / "config.json").is_file():
        raise FileNotFoundError(f"{whole} contains no model: config.json is missing.")
    model = pretrained.load({"pretrained_model_name_or_path": str(whole)}, dtype)
    if base:
        pretrained.require_complete(model.load_adapter(str(folder), is_trainable=True), folder)
        _forget_where_it_came_from(model)
    return model


def add(model: PreTrainedModel, adapter: Adapter, seed: int) -> None:
    """Add a new adapter to a model. Only the weights of the adapter are then trainable.

    The weights are initialised with `seed`. Raises ValueError if one of the adapter's targets is
    not a linear layer of the model.
    """
    from peft import LoraConfig

    modules = model.base_model.named_modules()
    linear = sorted(
        {n.rpartition(".")[2] for n, module in modules if isinstance(module, nn.Linear)}
    )
    targets = linear if adapter.targets == "all-linear" else sorted(adapter.targets)
    # peft would ignore a target that does not exist
    if strange := [name for name in targets if name not in linear]:
        raise ValueError(
            f"adapter.targets: the model lacks a linear layer {strange[0]!r}."
            f"{did_you_mean(strange[0], linear)}"
        )
    # peft uses the global random generator, which other code must find unchanged
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model.add_adapter(
            LoraConfig(r=adapter.rank, lora_alpha=adapter.alpha, target_modules=targets)
        )
    _forget_where_it_came_from(model)


def _forget_where_it_came_from(model: PreTrainedModel) -> None:
    """Remove the path of the base model from an adapter's config, and sort the target modules.

    Equal adapters then have identical configs.
    """
    from peft import LoraConfig

    settings = model.peft_config["default"]
    assert isinstance(settings, LoraConfig)
    settings.base_model_name_or_path = None
    settings.target_modules = sorted(settings.target_modules)
