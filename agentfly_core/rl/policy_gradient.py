"""What all algorithms share: a loss of tokens, their weights, a correction for the sampler, a penalty for straying."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from agentfly_core.rl.aggregation import Aggregation, TokenMean
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.importance_sampling import ImportanceSampling
from agentfly_core.rl.interface import Advantages, Critic, Loss, OffPolicy, Outputs
from agentfly_core.rl.kl import KL, LossKL, RewardKL, kl
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_loss import Clip, PolicyLoss


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(ABC):
    """An Algorithm up to its advantages: a subclass says how `advantages` come about, and other defaults.

    algorithm:
      use: grpo
      policy_loss: {use: clip, low: 0.2, high: 0.28}
      aggregation: token_mean
      correction: {use: token_tis, cap: 2.0}          # for a sampler that differs from the learner
      kl: {use: loss, weight: 0.001, reference: run:base@40}    # or start, the default
      skip_cut: true                                  # no advantage for what a limit of length cut
    """

    refills: ClassVar[int] = 0

    policy_loss: PolicyLoss = Clip()
    aggregation: Aggregation = TokenMean()
    correction: ImportanceSampling | None = None
    kl: KL | None = None
    skip_cut: bool = False

    @abstractmethod
    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """From rewards to advantages [rows, T], over the whole update."""

    @property
    def reference(self) -> str | None:
        """The one that a penalty for straying names."""
        return self.kl.reference if self.kl else None

    @property
    def needs_old(self) -> bool:
        """For a ratio to the old policy, and for what corrects the sampler or penalises the old policy's tokens."""
        return self.policy_loss.needs_old or self.correction is not None or isinstance(self.kl, RewardKL)

    @property
    def off_policy(self) -> OffPolicy:
        """What its loss of tokens does; a correction is for the sampler, not for an update's own steps."""
        return "ratio" if self.policy_loss.needs_old else "none"

    @property
    def credits_signals(self) -> bool:
        """A critic's values and a penalty in the reward are part of the credit."""
        return self.critic != "none" or isinstance(self.kl, RewardKL)

    @property
    def needs_greedy(self) -> bool:
        """Few compare with a greedy episode."""
        return False

    @property
    def compares_group(self) -> bool:
        """Most do."""
        return True

    @property
    def drops_equal(self) -> bool:
        """Most keep them: they earn no advantage."""
        return False

    @property
    def learns_anyway(self) -> bool:
        """With a critic, or with a penalty in the loss."""
        return self.critic != "none" or isinstance(self.kl, LossKL)

    @property
    def critic(self) -> Critic:
        """Few have one."""
        return "none"

    @property
    def critic_rate(self) -> float:
        """Without a critic nothing learns at it."""
        return 1.0

    @property
    def corrects_sampler(self) -> bool:
        """With a correction."""
        return self.correction is not None

    def after(self, before: Mapping[str, float]) -> Self:
        """An adaptive penalty goes on from what the update before it measured."""
        return replace(self, kl=self.kl.after(before)) if isinstance(self.kl, RewardKL) else self

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        """The divergence that the rewards pay for, a token, if any was sampled, and its weight."""
        if not isinstance(self.kl, RewardKL):
            return {}
        if not bool(batch.sampled.any()):
            return {"train/kl_weight": self.kl.weight}
        divergence = kl(batch.old_logprobs, batch.reference_logprobs, self.kl.kind)[batch.sampled]
        return {"train/kl_reference": float(divergence.mean()), "train/kl_weight": self.kl.weight}

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """The advantages, of rewards that pay for straying if they shall; none for what is cut, if it shall be so."""
        if isinstance(self.kl, RewardKL):
            outcomes = _paying(outcomes, self.kl, batch)
        found = self.advantages(outcomes, batch)
        if not self.skip_cut:
            return found
        return replace(found, advantages=found.advantages.masked_fill(outcomes.cut[batch.trajectory, None], 0.0))

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Each sampled token's share in the optimizer step's loss."""
        return self.aggregation.weights(batch)

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """The weighted sum of the tokens' losses, corrected for the sampler, plus the penalty."""
        found = self.policy_loss.tokens(outputs, batch)
        losses, metrics = found.tokens, dict(found.metrics)
        if self.correction is not None:
            correction = self.correction.weights(batch)
            losses, metrics = losses * correction.tokens, {**metrics, **correction.metrics}
        if isinstance(self.kl, LossKL):
            divergence = kl(outputs.logprobs, batch.reference_logprobs, self.kl.kind)
            losses, metrics["train/kl_reference"] = losses + self.kl.weight * divergence, divergence.detach()
        return Loss((batch.weight * losses).sum(), metrics)


def _paying(outcomes: Outcomes, penalty: RewardKL, batch: RolloutBatch) -> Outcomes:
    divergence = kl(batch.old_logprobs, batch.reference_logprobs, penalty.kind).double() * batch.sampled
    cost = penalty.weight * divergence
    total = torch.zeros_like(outcomes.rewards).index_add(0, batch.trajectory, cost.sum(dim=1))
    return replace(outcomes, rewards=outcomes.rewards - total, token_rewards=outcomes.token_rewards - cost)
