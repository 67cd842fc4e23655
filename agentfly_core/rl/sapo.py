"""Soft adaptive policy optimisation: a smooth gate in the place of clipping (arXiv 2511.20347)."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field

from agentfly_core.config.section import Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Outputs, log_ratio
from agentfly_core.rl.policy_loss import TokenLosses


class SAPO(Section):
    """`-A sigmoid(tau (rho - 1)) 4 / tau`: on-policy the gradient of `-A rho`, and less and less further away.

    `tau` is that of good tokens (A > 0), `tau_bad` that of the others, higher so that they are let go of sooner.
    """

    use: Literal["sapo"] = "sapo"
    tau: Annotated[float, Field(gt=0.0)] = 1.0
    tau_bad: Annotated[float, Field(gt=0.0)] = 1.05

    @property
    def needs_old(self) -> bool:
        """The ratio is to the old policy."""
        return True

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """See TokenLosses; `train/gate` is the gate's slope, 1 on-policy."""
        rho = log_ratio(outputs.logprobs, batch.old_logprobs).exp()
        tau = torch.where(batch.advantages > 0, self.tau, self.tau_bad)
        gate = torch.sigmoid(tau * (rho - 1))
        slope = (4 * gate * (1 - gate)).detach()
        return TokenLosses(-batch.advantages * gate * 4 / tau, {"train/gate": slope})
