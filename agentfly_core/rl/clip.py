"""Proximal policy optimisation's clipped ratio (arXiv 1707.06347, eq. 7)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field

from agentfly_core.config.section import Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Outputs, log_ratio
from agentfly_core.rl.policy_loss import TokenLosses


class Clip(Section):
    """`max(-A rho, -A clip(rho, 1 - low, 1 + high))` with rho the probability ratio to the old policy.

    A bound of its own on each side is from DAPO (2503.14476). `dual` bounds the loss of a bad token by `-A dual`, since
    its ratio may grow without end (1912.09729); None: no such bound.
    """

    use: Literal["clip"] = "clip"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    high: Annotated[float, Field(ge=0.0)] = 0.2
    dual: Annotated[float, Field(gt=1.0)] | None = None

    @property
    def needs_old(self) -> bool:
        """The ratio is to the old policy."""
        return True

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """See TokenLosses; `train/clip_fraction` is the share of tokens beyond a bound."""
        rho, credit = log_ratio(outputs.logprobs, batch.old_logprobs).exp(), batch.advantages
        free = -credit * rho
        loss = torch.maximum(free, -credit * rho.clamp(1.0 - self.low, 1.0 + self.high))
        clipped = loss > free
        if self.dual is not None:
            bound = -credit * self.dual
            over = (credit < 0) & (loss > bound)
            loss, clipped = torch.where(over, bound, loss), clipped | over
        return TokenLosses(loss, {"train/clip_fraction": clipped.float()})
