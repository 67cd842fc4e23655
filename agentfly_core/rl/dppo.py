"""Divergence proximal policy optimisation, by total variation of a binary choice (arXiv 2602.04879)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.section import Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Outputs, log_ratio
from agentfly_core.rl.policy_loss import TokenLosses


class DPPO(Section):
    """`-A rho`, but nothing for a token whose probability went further than a bound the way its advantage pulls.

    With p its probability now and q when it was sampled: dropped where A > 0 and p - q > high, or A <= 0 and
    p - q < -low. Unlike a ratio's bound, this one lets rare tokens move.
    """

    use: Literal["dppo_tv"] = "dppo_tv"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    high: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2

    @property
    def needs_old(self) -> bool:
        """The ratio is to the old policy."""
        return True

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """See TokenLosses; `train/clip_fraction` is the share of tokens that are dropped."""
        moved = outputs.logprobs.detach().exp() - batch.rollout_logprobs.exp()
        good = batch.advantages > 0
        dropped = (good & (moved > self.high)) | (~good & (moved < -self.low))
        loss = -batch.advantages * log_ratio(outputs.logprobs, batch.old_logprobs).exp()
        return TokenLosses(loss.masked_fill(dropped, 0.0), {"train/clip_fraction": dropped.float()})
