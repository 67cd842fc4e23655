"""Advantages on one scale over the whole batch."""

from __future__ import annotations

import torch
from torch import Tensor

from agentfly_core.batch import RolloutBatch


def whitened(advantages: Tensor, batch: RolloutBatch) -> Tensor:
    """Mean 0 and variance 1 over all sampled tokens, [rows, T]; all 0 where they are all equal."""
    found = advantages[batch.sampled].double()
    if len(found) < 2 or bool((found == found[0]).all()):
        return torch.zeros_like(advantages)
    scaled = (found - found.mean()) / (found.std() + 1e-8)
    return torch.zeros_like(advantages).masked_scatter(batch.sampled, scaled.to(advantages.dtype))
