"""Clipped importance weights that keep every token's gradient (CISPO, MiniMax-M1, arXiv 2506.13585)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.section import Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Outputs, log_ratio
from agentfly_core.rl.policy_loss import TokenLosses


class CISPO(Section):
    """`-clip(rho, 1 - low, 1 + high) A log p`, the clipped ratio a constant.

    `high` is a distance from 1: with 4 the weight is at most 5. With `low` 1 there is no bound below, as in the paper.
    """

    use: Literal["cispo"] = "cispo"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    high: Annotated[float, Field(ge=0.0)] = 4.0

    @property
    def needs_old(self) -> bool:
        """The ratio is to the old policy."""
        return True

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """See TokenLosses; `train/clip_fraction` is the share of tokens whose weight is clipped."""
        rho = log_ratio(outputs.logprobs, batch.old_logprobs).exp().detach()
        weight = rho.clamp(1.0 - self.low, 1.0 + self.high)
        loss = -weight * batch.advantages * outputs.logprobs
        return TokenLosses(loss, {"train/clip_fraction": (weight != rho).float()})
