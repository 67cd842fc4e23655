"""Supervised fine-tuning on demonstrations, masked: only the tokens of replies are learned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from agentfly_core.algorithm import Credit, Group, Loss, Outputs, token_mean
from agentfly_core.batch import RolloutBatch


@dataclass(frozen=True)
class SFT:
    """The mean of -log p over the demonstrated replies' tokens; no settings: `SFT()`."""

    needs_reference: ClassVar[bool] = False
    needs_old: ClassVar[bool] = False

    def advantages(self, groups: Sequence[Group], batch: RolloutBatch) -> Credit:
        """Every demonstrated token is as good as another."""
        return Credit(batch.sampled.float())

    def weights(self, batch: RolloutBatch) -> Tensor:
        """The mean over all demonstrated tokens of the optimizer step."""
        return token_mean(batch)

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """-log p, weighted."""
        return Loss(-(batch.weight * outputs.logprobs).sum(), {})
