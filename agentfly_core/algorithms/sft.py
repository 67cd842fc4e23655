"""Supervised fine-tuning with a mask: only the tokens of replies are learned."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages, Loss, Needs, Outputs
from agentfly_core.rl.late import Tensor
from agentfly_core.rl.outcomes import Outcomes


@dataclass(frozen=True)
class SFT:
    """The mean of -log p over the reply tokens of demonstrations. `SFT()` takes no settings."""

    refills: ClassVar[int] = 0
    needs: ClassVar[Needs] = Needs(off_policy="imitation")

    def after(self, before: Mapping[str, float]) -> Self:
        """Return itself, because nothing is adapted."""
        return self

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        return {}

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Return 1 for every sampled token."""
        return Advantages.of(batch.sampled.float())

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Return equal weights for all learned tokens of the optimizer step."""
        # at least 1: a step without learned tokens must not divide 0 by 0
        return batch.advantages / batch.advantages.sum().clamp(min=1)

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        return Loss(-(batch.weight * outputs.logprobs).sum(), {})
