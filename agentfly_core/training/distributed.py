"""The processes (ranks) of a learner. The functions read and set a parameter's weight and AdamW
moments, even if DeepSpeed has divided these tensors among the ranks.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

import deepspeed
import torch
import torch.distributed as dist
from deepspeed import DeepSpeedEngine, utils
from torch import Tensor, nn
from torch.nn.functional import pad


@dataclass(frozen=True)
class Ranks:
    """The rank of this process (`rank`, from 0), and the number of all ranks (`count`).

    `channel` is a process group with gloo as its backend. The methods send CPU data through it.
    """

    rank: int
    count: int
    channel: dist.ProcessGroup

    def broadcast(self, text: str) -> str:
        """Return the text of the first rank. All ranks must call this method together."""
        holder = [text]
        dist.broadcast_object_list(holder, src=0, group=self.channel)
        return holder[0]

    def gather(self, patience: timedelta) -> bool:
        """Wait until all ranks have called this method.

        Returns False if a rank has not called it within the time `patience`.
        """
        try:
            dist.monitored_barrier(self.channel, patience)
        except RuntimeError:
            return False
        return True

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a CPU tensor over all ranks in place, and return the tensor."""
        dist.all_reduce(tensor, group=self.channel)
        return tensor

    def add_up(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Return, for each name in `numbers`, the sum of the number over all ranks."""
        # sorted, because numbers are added by position, and ranks may have different orders
        names = sorted(numbers)
        total = self.sum(torch.tensor([numbers[name] for name in names], dtype=torch.float64))
        return dict(zip(names, total.tolist(), strict=True))


MOMENTS = ("exp_avg", "exp_avg_sq")


def weight(engine: DeepSpeedEngine, parameter: nn.Parameter) -> Tensor:
    """Return the whole weight of a parameter in float32.

    All ranks must call this function together.
    """
    full: Tensor = (
        utils.safe_get_full_fp32_param(parameter) if engine.zero_optimization() else parameter.data
    )
    return full


def moment(engine: DeepSpeedEngine, parameter: nn.Parameter, name: str) -> Tensor:
    """Return a moment of AdamW for a parameter. `name` is "exp_avg" or "exp_avg_sq".

    All ranks must call this function together.
    """
    if not engine.zero_optimization():
        whole: Tensor = engine.optimizer.state[parameter][name]
    else:
        whole = utils.safe_get_full_optimizer_state(parameter, name)
    return whole


def put(
    engine: DeepSpeedEngine, parameter: nn.Parameter, weight: Tensor, moments: dict[str, Tensor]
) -> None:
    """Set the weight and the moments of a parameter. All ranks must call this function together."""
    with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
        parameter.data.copy_(weight)
    if not engine.zero_optimization():
        for name, value in moments.items():
            engine.optimizer.state[parameter][name].copy_(value)
    elif engine.zero_optimization_partition_weights():
        utils.safe_set_local_fp32_param(parameter, _own_part(parameter, weight))
        for name, value in moments.items():
            utils.safe_set_local_optimizer_state(parameter, _own_part(parameter, value), name)
    else:
        utils.safe_set_full_fp32_param(parameter, weight)
        for name, value in moments.items():
            utils.safe_set_full_optimizer_state(parameter, value, name)


def _own_part(parameter: nn.Parameter, value: Tensor) -> Tensor:
    """Return the part of a tensor that belongs to this rank at ZeRO stage 3.

    The tensor is first padded with zeros, to give all ranks parts of equal size. At stage 3,
    DeepSpeed 0.19 omits this padding in `safe_set_full_fp32_param` and
    `safe_set_full_optimizer_state`.
    """
    size: int = vars(parameter)["ds_tensor"].numel()
    flat = pad(value.flatten(), (0, size * dist.get_world_size() - value.numel()))
    return flat.narrow(0, size * dist.get_rank(), size)
