"""Decoupled clip and dynamic sampling policy optimisation (DAPO, arXiv 2503.14476)."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.config.section import Positive, Section
from agentfly_core.rl import Advantages, Needs, Outcomes, RolloutBatch, sequences
from agentfly_core.rl.policy_loss import Clip, PolicyLoss


class Overlong(Section):
    """A soft penalty on the length of a trajectory (equation 13 of the DAPO paper).

    The penalty is subtracted from the reward. Trajectories with at most `longest - buffer` sampled
    tokens have the penalty 0. Trajectories with `longest` or more tokens have the penalty `factor`.
    Between these two lengths, the penalty grows linearly. Example: with longest 100, buffer 20 and
    factor 1, a trajectory with 90 tokens loses 0.5.
    """

    longest: Positive
    buffer: Positive
    factor: Annotated[float, Field(gt=0.0)] = 1.0

    @model_validator(mode="after")
    def _begins_above_nothing(self) -> Self:
        if self.buffer > self.longest:
            raise ValueError(
                f"buffer is {self.buffer}, but longest is {self.longest}; set buffer to "
                f"{self.longest} or less"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class DAPO(GRPO):
    """GRPO with a higher upper clip bound, an optional penalty on length, and dynamic sampling.

    Dynamic sampling leaves out problems with equal rewards in all episodes, and plays new problems
    in a further round. A step has at most `rollout.refills` further rounds. The default is 2.
    """

    # in the paper, the number of rounds is not limited
    refills: ClassVar[int] = 2

    policy_loss: PolicyLoss = Clip(low=0.2, high=0.28)
    overlong: Overlong | None = None

    @property
    def needs(self) -> Needs:
        return replace(super().needs, drops_equal_groups=True)

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        if (bound := self.overlong) is not None:
            beyond = sequences(batch, len(outcomes.rewards)).lengths - (
                bound.longest - bound.buffer
            )
            penalty = (beyond.double() / bound.buffer).clamp(0.0, 1.0) * bound.factor
            outcomes = replace(outcomes, rewards=outcomes.rewards - penalty)
        return super().advantages(outcomes, batch)
