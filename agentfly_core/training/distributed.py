"""The processes (ranks) of a learner, and functions to read and set sharded weights and moments."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypedDict

import deepspeed
import torch
import torch.distributed as dist
from deepspeed import utils
from torch import Tensor, nn
from torch.nn.functional import pad

from agentfly_core.training.policy import Policy
from agentfly_core.training.prefix_tree import PrefixTrees


@dataclass(frozen=True)
class Ranks:
    """This process's `rank` among `count` ranks. `channel` is a gloo group for CPU tensors."""

    rank: int
    count: int
    channel: dist.ProcessGroup

    def broadcast(self, text: str) -> str:
        """Return the first rank's text on all ranks."""
        holder = [text]
        dist.broadcast_object_list(holder, src=0, group=self.channel)
        return holder[0]

    def gather(self, patience: timedelta) -> bool:
        """Wait for all ranks. Returns False if a rank has not arrived after `patience`."""
        try:
            dist.monitored_barrier(self.channel, patience)
        except RuntimeError:
            return False
        return True

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a CPU tensor over all ranks, in place."""
        dist.all_reduce(tensor, group=self.channel)
        return tensor

    def add_up(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Sum the numbers of each name over all ranks."""
        # sorted by name: the tensors are added by position, but the names may be in another order
        # on other ranks
        names = sorted(numbers)
        total = self.sum(torch.tensor([numbers[name] for name in names], dtype=torch.float64))
        return dict(zip(names, total.tolist(), strict=True))


class ParameterGroup(TypedDict):
    """Parameters with the same optimizer settings."""

    params: list[nn.Parameter]
    lr: float
    betas: tuple[float, float]
    weight_decay: float


class Optimizer(Protocol):
    """AdamW or DeepSpeed's wrapper of it. Both clip the gradient norm to `clip_grad`.

    `state` maps each parameter to its `MOMENTS` and `step`.
    """

    param_groups: list[ParameterGroup]
    state: Mapping[nn.Parameter, dict[str, Tensor]]
    clip_grad: float

    def step(self) -> None: ...


class Engine(Protocol):
    """The part of the untyped `deepspeed.DeepSpeedEngine` that we use."""

    module: Policy
    device: torch.device
    optimizer: Optimizer
    basic_optimizer: Optimizer
    enable_backward_allreduce: bool

    def __call__(
        self,
        tokens: Tensor,
        sampled: Tensor,
        temperature: float | Tensor,
        trees: PrefixTrees | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]: ...
    def backward(self, loss: Tensor, *, scale_wrt_gas: bool) -> None: ...
    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None: ...
    def step(self) -> None: ...
    def was_step_applied(self) -> bool: ...
    def get_global_grad_norm(self) -> float: ...
    def zero_optimization(self) -> bool: ...
    def zero_optimization_partition_weights(self) -> bool: ...
    def destroy(self) -> None: ...


MOMENTS = ("exp_avg", "exp_avg_sq")


def weight(engine: Engine, parameter: nn.Parameter) -> Tensor:
    """Return a whole float32 weight. All ranks must call this function together."""
    full: Tensor = (
        utils.safe_get_full_fp32_param(parameter) if engine.zero_optimization() else parameter.data
    )
    return full


def moment(engine: Engine, parameter: nn.Parameter, name: str) -> Tensor:
    """Return a parameter's AdamW moment, one of `MOMENTS`. All ranks must call this function
    together.
    """
    if not engine.zero_optimization():
        return engine.optimizer.state[parameter][name]
    whole: Tensor = utils.safe_get_full_optimizer_state(parameter, name)
    return whole


def put(
    engine: Engine, parameter: nn.Parameter, weight: Tensor, moments: dict[str, Tensor]
) -> None:
    """Set a parameter's weight and moments. Call this function on every rank."""
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
    """Return this rank's part of a tensor at ZeRO stage 3.

    The tensor is padded because of a bug in DeepSpeed 0.19.
    """
    size: int = vars(parameter)["ds_tensor"].numel()
    flat = pad(value.flatten(), (0, size * dist.get_world_size() - value.numel()))
    return flat.narrow(0, size * dist.get_rank(), size)
