"""Supervised fine-tuning (SFT) with a mask: only the tokens of replies are trained."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from agentfly_core.rl import Advantages, Loss, Needs, Outcomes, Outputs, RolloutBatch
from agentfly_core.rl.late import Tensor


@dataclass(frozen=True)
class SFT:
    """Supervised fine-tuning. The loss is the mean of -log p over the reply tokens of
    demonstrations.
    """

    refills: ClassVar[int] = 0
    needs: ClassVar[Needs] = Needs(off_policy="imitation")

    def after(self, before: Mapping[str, float]) -> Self:
        """Return the algorithm unchanged: SFT adapts no hyper-parameters between updates."""
        return self

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        return {}

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Return the advantage 1 for every sampled token."""
        return Advantages.of(batch.sampled.float())

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Return the weight of each token in the loss.

        All tokens that have the advantage 1 have the same weight. All other tokens have the weight
        0. The sum of the weights in an optimizer step is 1.
        """
        # at least 1, because a step without such tokens must not divide 0 by 0
        return batch.advantages / batch.advantages.sum().clamp(min=1)

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        return Loss(-(batch.weight * outputs.logprobs).sum(), {})
