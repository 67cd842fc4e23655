"""REINFORCE (Williams, 1992), for updates of a single optimizer step."""

from __future__ import annotations

from typing import Literal

from agentfly_core.config.section import Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Outputs
from agentfly_core.rl.policy_loss import TokenLosses


class Reinforce(Section):
    """`-A log p`; no settings."""

    use: Literal["reinforce"] = "reinforce"

    @property
    def needs_old(self) -> bool:
        """There is no ratio."""
        return False

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """See TokenLosses."""
        return TokenLosses(-batch.advantages * outputs.logprobs, {})
