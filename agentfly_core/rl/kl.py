"""KL penalties: estimates of KL(policy || reference) in the loss or in the rewards."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field

from agentfly_core.config.reference import run_step
from agentfly_core.config.section import BY_NAME, Section
from agentfly_core.rl.advantage import sequences
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Needs, Outputs, log_ratio
from agentfly_core.rl.late import Tensor, torch
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.rl.policy_loss import TokenLosses

KLEstimator = Literal["k1", "k2", "k3", "abs"]
Weight = Annotated[float, Field(gt=0.0)]
START = "start"


def _a_policy(where: str) -> str:
    if where != START and run_step(where) is None:
        raise ValueError(
            f"got {where!r}, expected {START}, or run:NAME@STEP such as run:nightly-2026-11-20@40"
        )
    return where


ReferencePolicy = Annotated[str, AfterValidator(_a_policy)]
"""The reference policy: `start` (the policy before step 1), or `run:NAME@STEP`."""


def kl(logprobs: Tensor, reference: Tensor, kind: KLEstimator) -> Tensor:
    """Estimate KL(policy || reference) at the policy's tokens (joschu.net/blog/kl-approx.html).

    With D = logprobs - reference: k1 = D, k2 = D^2/2, k3 = exp(-D) + D - 1, abs = |D|.
    """
    difference = log_ratio(logprobs, reference)
    if kind == "k1":
        return difference
    if kind == "k2":
        return difference.square() / 2
    if kind == "k3":
        return torch.exp(-difference) + difference - 1
    return difference.abs()


class NoKL(Section):
    """No penalty (`kl: null`), and the base class of penalties."""

    in_rewards: ClassVar[bool] = False

    def add_needs(self, needs: Needs) -> Needs:
        """Add the penalty's needs to the algorithm's needs."""
        return needs

    def after(self, before: Mapping[str, float]) -> Self:
        """Return the penalty for the next update, adapted to the last update's metrics `before`."""
        return self

    def metrics(self, batch: RolloutBatch) -> Mapping[str, float]:
        """Compute metrics before the first optimizer step."""
        return {}

    def on_rewards(self, outcomes: Outcomes, batch: RolloutBatch) -> Outcomes:
        """Subtract the penalty from the rewards."""
        return outcomes

    def on_losses(self, losses: TokenLosses, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """Add the penalty to the tokens' losses."""
        return losses


class LossKL(NoKL):
    """Adds `weight` times the KL estimate to the loss. k1 is excluded, because its gradient
    vanishes on-policy.
    """

    use: Literal["loss"] = "loss"
    weight: Weight = 0.001
    kind: Literal["k2", "k3", "abs"] = "k3"
    reference: ReferencePolicy = START

    def add_needs(self, needs: Needs) -> Needs:
        return replace(needs, reference=self.reference, trains_all_rows=True)

    def on_losses(self, losses: TokenLosses, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        # here the gradient flows through the estimate; in `RewardKL` the estimate is a constant of
        # the old policy
        estimate = kl(outputs.logprobs, batch.reference_logprobs, self.kind)
        metrics = {**losses.metrics, "train/kl_reference": estimate.detach()}
        return TokenLosses(losses.tokens + self.weight * estimate, metrics)


class RewardKL(NoKL):
    """Subtracts `weight` times the KL estimate from token rewards (InstructGPT, 2203.02155)."""

    in_rewards: ClassVar[bool] = True

    use: Literal["reward"] = "reward"
    weight: Weight = 0.001
    kind: KLEstimator = "k1"
    reference: ReferencePolicy = START

    def add_needs(self, needs: Needs) -> Needs:
        return replace(
            needs, reference=self.reference, old_logprobs=True, signals_before_advantages=True
        )

    def metrics(self, batch: RolloutBatch) -> Mapping[str, float]:
        if not bool(batch.sampled.any()):
            return {"train/kl_weight": self.weight}
        estimates = self._estimates(batch)[batch.sampled]
        return {"train/kl_reference": float(estimates.mean()), "train/kl_weight": self.weight}

    def on_rewards(self, outcomes: Outcomes, batch: RolloutBatch) -> Outcomes:
        # float64 like the rewards, because a group whose rewards are exactly equal has no advantage
        cost = self.weight * (self._estimates(batch).double() * batch.sampled)
        total = torch.zeros_like(outcomes.rewards).index_add(0, batch.trajectory, cost.sum(dim=1))
        of_tokens = sequences(batch, len(outcomes.rewards)).gather(cost)
        return replace(
            outcomes,
            rewards=outcomes.rewards - total,
            token_rewards=outcomes.token_rewards - of_tokens,
        )

    def _estimates(self, batch: RolloutBatch) -> Tensor:
        return kl(batch.old_logprobs, batch.reference_logprobs, self.kind)


class AdaptiveKL(RewardKL):
    """RewardKL with a weight that holds KL near a target (arXiv 1909.08593, section 2.2).

    After an update with n trajectories the weight is multiplied by `1 + clip(measured / target - 1,
    -0.2, 0.2) n / horizon`.
    """

    use: Literal["adaptive"] = "adaptive"  # type: ignore[assignment]
    target: Weight = 0.01
    horizon: Weight = 10_000.0

    def after(self, before: Mapping[str, float]) -> Self:
        """Return a copy with the adapted weight.

        The weight stays the same if the last update had no sampled token.
        """
        weight = before.get("train/kl_weight", self.weight)
        if "train/kl_reference" not in before:
            return self.model_copy(update={"weight": weight})
        # clipped, to limit the effect of one outlier on the weight
        beyond = min(max(before["train/kl_reference"] / self.target - 1, -0.2), 0.2)
        factor = 1 + beyond * before["train/trajectories"] / self.horizon
        return self.model_copy(update={"weight": weight * factor})


KL = Annotated[LossKL | RewardKL | AdaptiveKL, Field(discriminator="use"), BY_NAME]
"""Written in an experiment file as `{use: loss, weight: 0.001, kind: k2}`."""
