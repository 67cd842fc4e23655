"""KL penalties, which keep the policy near a reference policy. An estimate of KL(policy ||
reference) is added to the loss, or subtracted from the rewards.
"""

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
"""The setting `reference`: `start` (the policy before step 1), or `run:NAME@STEP` (the policy after
a step of a run).
"""


def kl(logprobs: Tensor, reference: Tensor, kind: KLEstimator) -> Tensor:
    """Estimate KL(policy || reference) for each sampled token (joschu.net/blog/kl-approx.html).

    With D = logprobs - reference, the estimates are k1 = D, k2 = D^2/2, k3 = exp(-D) + D - 1 and
    abs = |D|.
    """
    difference = log_ratio(logprobs, reference)
    estimates = {
        "k1": difference,
        "k2": difference.square() / 2,
        "k3": torch.exp(-difference) + difference - 1,
        "abs": difference.abs(),
    }
    return estimates[kind]


class NoKL(Section):
    """A KL penalty without effect, for the setting `kl: null`. All KL penalties inherit from this
    class.
    """

    in_rewards: ClassVar[bool] = False

    def add_needs(self, needs: Needs) -> Needs:
        """Add the requirements of this penalty, such as a reference policy, to the requirements
        `needs` of an algorithm.
        """
        return needs

    def after(self, before: Mapping[str, float]) -> Self:
        """Return the penalty for the next update, which may have another weight.

        `before` has the metrics of the last update.
        """
        return self

    def metrics(self, batch: RolloutBatch) -> Mapping[str, float]:
        """Return the metrics that are computed before the first optimizer step of an update.

        Penalties that are subtracted from rewards return their KL estimate and their weight. For
        other penalties, the result is empty.
        """
        return {}

    def on_rewards(self, outcomes: Outcomes, batch: RolloutBatch) -> Outcomes:
        """Return the outcomes unchanged. `RewardKL` overrides this method to subtract a penalty."""
        return outcomes

    def on_losses(self, losses: TokenLosses, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        """Return the losses unchanged. `LossKL` overrides this method to add a penalty."""
        return losses


class LossKL(NoKL):
    """Adds the KL estimate, multiplied by `weight`, to the loss of each token.

    The estimate k1 is not allowed, because on-policy the expected gradient of k1 is 0.
    """

    use: Literal["loss"] = "loss"
    weight: Weight = 0.001
    kind: Literal["k2", "k3", "abs"] = "k3"
    reference: ReferencePolicy = START

    def add_needs(self, needs: Needs) -> Needs:
        return replace(needs, reference=self.reference, trains_all_rows=True)

    def on_losses(self, losses: TokenLosses, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        # this estimate has a gradient; the estimate in `RewardKL` is a constant
        estimate = kl(outputs.logprobs, batch.reference_logprobs, self.kind)
        metrics = {**losses.metrics, "train/kl_reference": estimate.detach()}
        return TokenLosses(losses.tokens + self.weight * estimate, metrics)


class RewardKL(NoKL):
    """Subtracts the KL estimate, multiplied by `weight`, from the reward of each token
    (InstructGPT, arXiv 2203.02155).
    """

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
        # float64, as the rewards, because advantages test whether rewards are equal
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
    """Subtracts the KL estimate from rewards, like RewardKL, but with a variable weight.

    The weight is adapted after each update, to keep the KL near `target` (arXiv 1909.08593, section
    2.2). After an update with n trajectories, the weight is multiplied by `1 + clip(measured /
    target - 1, -0.2, 0.2) n / horizon`. `measured` is the KL of the update. A larger `horizon`
    makes the weight change more slowly.
    """

    use: Literal["adaptive"] = "adaptive"  # type: ignore[assignment]
    target: Weight = 0.01
    horizon: Weight = 10_000.0

    def after(self, before: Mapping[str, float]) -> Self:
        """Return a copy of the penalty with the weight for the next update.

        The weight is computed from `before`, the metrics of the last update. If that update had no
        sampled tokens, the weight does not change.
        """
        weight = before.get("train/kl_weight", self.weight)
        if "train/kl_reference" not in before:
            return self.model_copy(update={"weight": weight})
        # clipped, because a single outlier must not change the weight much
        beyond = min(max(before["train/kl_reference"] / self.target - 1, -0.2), 0.2)
        factor = 1 + beyond * before["train/trajectories"] / self.horizon
        return self.model_copy(update={"weight": weight * factor})


KL = Annotated[LossKL | RewardKL | AdaptiveKL, Field(discriminator="use"), BY_NAME]
"""The setting `kl`. In an experiment file, it is written as `{use: loss, weight: 0.001, kind: k2}`.
"""
