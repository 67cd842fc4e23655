"""A parameter's float32 weight and AdamW's moments, whole, wherever DeepSpeed keeps them: at ZeRO stages 0 to 3."""

from __future__ import annotations

from typing import Any

import deepspeed
import torch
import torch.distributed
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_optimizer_state,
)
from torch import Tensor
from torch.nn.functional import pad

Engine = Any
MOMENTS = ("exp_avg", "exp_avg_sq")


def weight(engine: Engine, parameter: Any) -> Tensor:
    """The float32 weight; where it is divided among ranks, each must call it."""
    found: Tensor = safe_get_full_fp32_param(parameter) if engine.zero_optimization() else parameter.data
    return found


def moment(engine: Engine, parameter: Any, name: str) -> Tensor:
    """One of the `MOMENTS`; where they are divided among ranks, each must call it."""
    if not engine.zero_optimization():
        own: Tensor = engine.optimizer.state[parameter][name]
        return own
    whole: Tensor = safe_get_full_optimizer_state(parameter, name)
    return whole


def put(engine: Engine, parameter: Any, weight: Tensor, moments: dict[str, Tensor]) -> None:
    """Set all of them, on every rank."""
    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
        parameter.data.copy_(weight)
    if not engine.zero_optimization():
        for name, value in moments.items():
            engine.optimizer.state[parameter][name].copy_(value)
    elif engine.zero_optimization_partition_weights():
        safe_set_local_fp32_param(parameter, _own_part(parameter, weight))
        for name, value in moments.items():
            safe_set_local_optimizer_state(parameter, _own_part(parameter, value), name)
    else:
        safe_set_full_fp32_param(parameter, weight)
        for name, value in moments.items():
            safe_set_full_optimizer_state(parameter, value, name)


def _own_part(parameter: Any, value: Tensor) -> Tensor:
    """This rank's part of a tensor at stage 3; DeepSpeed 0.19 cannot find the last one of a tensor it had to pad."""
    size = parameter.ds_tensor.numel()
    flat = pad(value.flatten(), (0, size * torch.distributed.get_world_size() - value.numel()))
    return flat.narrow(0, size * torch.distributed.get_rank(), size)
