"""Group sequence policy optimisation's ratio of whole replies (arXiv 2507.18071)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field

from agentfly_core.config.section import Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Outputs, log_ratio
from agentfly_core.rl.policy_loss import TokenLosses, row_means


class GSPO(Section):
    """`max(-A s, -A clip(s, 1 - low, 1 + high))` with s the geometric mean of the ratios of a row's sampled tokens.

    Each token's gradient goes through its own log-probability (the paper's GSPO-token).
    """

    use: Literal["gspo"] = "gspo"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 3e-4
    high: Annotated[float, Field(ge=0.0)] = 4e-4

    @property
    def needs_old(self) -> bool:
        """The ratio is to the old policy."""
        return True

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """See TokenLosses; `train/clip_fraction` is the share of tokens in replies beyond a bound."""
        mean = row_means(log_ratio(outputs.logprobs, batch.old_logprobs).detach(), batch)
        s = (mean + outputs.logprobs - outputs.logprobs.detach()).exp()
        free = -batch.advantages * s
        loss = torch.maximum(free, -batch.advantages * s.clamp(1.0 - self.low, 1.0 + self.high))
        return TokenLosses(loss, {"train/clip_fraction": (loss > free).float()})
