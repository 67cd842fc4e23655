"""The processes of a learner: which one this is, and how they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class Ranks:
    """This process is `rank` of `count`; they talk over `channel`, a group that works on CPU tensors (gloo)."""

    rank: int
    count: int
    channel: Any

    def tell(self, text: str) -> str:
        """What the first rank said, on every rank."""
        said = [text]
        dist.broadcast_object_list(said, src=0, group=self.channel)
        return said[0]

    def gather(self, patience: timedelta) -> bool:
        """Whether all ranks get here in time; one that waits for another in a collective does not."""
        try:
            dist.monitored_barrier(self.channel, patience)
        except RuntimeError:
            return False
        return True

    def sum(self, tensor: Tensor) -> Tensor:
        """The sum of a CPU tensor over all ranks, in place."""
        dist.all_reduce(tensor, group=self.channel)
        return tensor

    def add_up(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """Numbers with the same names on every rank, each summed over all of them."""
        names = sorted(numbers)
        total = self.sum(torch.tensor([numbers[name] for name in names], dtype=torch.float64))
        return dict(zip(names, total.tolist(), strict=True))
