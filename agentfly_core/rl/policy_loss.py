"""What a loss, a correction and a penalty say of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from agentfly_core.rl.batch import RolloutBatch


@dataclass(frozen=True)
class TokenLosses:
    """A number for each token [rows, T], and `metrics` [rows, T] that are averaged over sampled tokens.

    `TokenLosses(tensor([[0., .1, -.2]]), {"train/clip_fraction": tensor([[0., 0., 1.]])})`
    """

    tokens: Tensor
    metrics: Mapping[str, Tensor]


def row_means(tokens: Tensor, batch: RolloutBatch) -> Tensor:
    """The mean [rows, 1] over the sampled tokens of each row; a row without any has 0."""
    count = batch.sampled.sum(dim=1, keepdim=True).clamp(min=1)
    return (tokens * batch.sampled).sum(dim=1, keepdim=True) / count
