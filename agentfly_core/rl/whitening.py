"""Advantages on one scale over the whole batch."""

from __future__ import annotations

import torch
from torch import Tensor

from agentfly_core.rl.batch import RolloutBatch


def whitened(advantages: Tensor, batch: RolloutBatch) -> Tensor:
    """Mean 0 and variance 1 over all sampled tokens, float32 [rows, T]; all 0 where they are all equal."""
    found, nothing = advantages[batch.sampled].double(), torch.zeros(advantages.shape)
    if len(found) < 2 or bool((found == found[0]).all()):
        return nothing
    scaled = (found - found.mean()) / (found.std() + 1e-8)
    return nothing.masked_scatter(batch.sampled, scaled.float())
