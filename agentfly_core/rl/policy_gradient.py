"""The base class of policy-gradient algorithms. It combines a policy loss, an aggregation,
importance sampling and a KL penalty.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from agentfly_core.rl.aggregation import Aggregation, TokenMean
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.importance_sampling import ImportanceSampling
from agentfly_core.rl.interface import Advantages, Loss, Needs, Outputs
from agentfly_core.rl.kl import KL, NoKL
from agentfly_core.rl.late import Tensor
from agentfly_core.rl.outcomes import Outcomes, over_leaves
from agentfly_core.rl.policy_loss import Clip, PolicyLoss, TokenLosses


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(ABC):
    """The base class of policy-gradient algorithms, with their common settings. Subclasses compute
    the advantages, and may change the defaults of the settings.

    algorithm:
      use: grpo
      policy_loss: {use: clip, low: 0.2, high: 0.28}
      aggregation: token_mean
      correction: {use: token_tis, cap: 2.0}          # for different sampler and learner logprobs
      kl: {use: loss, weight: 0.001, reference: run:base@40}    # the default reference is `start`
      skip_cut: true                                  # leave out episodes that a limit ended
      credit: tree_hard                               # a token that is in several trajectories
                                                      # (forks) gets the mean of their advantages
    """

    refills: ClassVar[int] = 0

    policy_loss: PolicyLoss = Clip()
    aggregation: Aggregation = TokenMean()
    correction: ImportanceSampling | None = None
    kl: KL | None = None
    skip_cut: bool = False
    credit: Literal["tree_soft", "tree_hard"] = "tree_soft"

    @abstractmethod
    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Compute the advantages [rows, T].

        `outcomes` and `batch` contain all trajectories of an update.
        """

    @property
    def penalty(self) -> NoKL:
        """The KL penalty in the setting `kl`, or NoKL (a penalty of 0) if `kl` is null."""
        return self.kl or NoKL()

    @property
    def needs(self) -> Needs:
        """The requirements of the policy loss, the importance weights and the KL penalty."""
        ratio, corrects = self.policy_loss.needs_old, self.correction is not None
        needs = Needs(
            old_logprobs=ratio or corrects,
            compares_group=True,
            corrects_sampler=corrects,
            # importance weights correct differences from the sampler, not the changes of the policy
            # by earlier optimizer steps of the same update
            off_policy="ratio" if ratio else "none",
        )
        return self.penalty.add_needs(needs)

    def after(self, before: Mapping[str, float]) -> Self:
        """Return the algorithm for the next update.

        With an adaptive KL penalty, the returned algorithm has a new weight for the penalty. The
        new weight is computed from `before`, the metrics of the last update. In all other cases,
        the algorithm does not change.
        """
        return replace(self, kl=self.kl.after(before)) if self.kl else self

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        """Return the metrics of the KL penalty. Subclasses may add metrics of their own."""
        return self.penalty.metrics(batch)

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Compute the advantages from the outcomes of a whole update.

        A KL penalty of the type RewardKL is first subtracted from the rewards. With the setting
        `skip_cut`, trajectories that ended at a limit get the advantage 0.
        """
        estimate = self.advantages(self.penalty.on_rewards(outcomes, batch), batch)
        # set to 0 after the advantages: a cut episode still counts in the baseline of its group
        counted = self._counted(batch)
        advantages = estimate.advantages * counted.sampled
        if self.credit == "tree_hard":
            advantages = over_leaves(advantages, outcomes, counted)
        return replace(estimate, advantages=advantages)

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Return the weight of each token in the loss of an optimizer step, [rows, T].

        The setting `aggregation` determines the weights of sampled tokens. Other tokens get the
        weight 0. With the setting `skip_cut`, all tokens of trajectories that ended at a limit get
        the weight 0, too.
        """
        # removed before the aggregation: such tokens must not count in its mean, either
        return self.aggregation.weights(self._counted(batch))

    def _counted(self, batch: RolloutBatch) -> RolloutBatch:
        """Return the batch that the loss uses.

        With the setting `skip_cut`, all tokens of trajectories that ended at a limit are marked as
        not sampled.
        """
        if not self.skip_cut:
            return batch
        return replace(batch, sampled=batch.sampled & ~batch.cut.unsqueeze(1))

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """Compute the loss of a micro-batch: the weighted sum of the losses of its tokens.

        Importance weights and the KL penalty are included.
        """
        losses = self.policy_loss.tokens(outputs, batch)
        if self.correction is not None:
            weights = self.correction.weights(batch)
            metrics = {**losses.metrics, **weights.metrics}
            losses = TokenLosses(losses.tokens * weights.tokens, metrics)
        losses = self.penalty.on_losses(losses, outputs, batch)
        return Loss((batch.weight * losses.tokens).sum(), losses.metrics)
