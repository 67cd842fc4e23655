"""The interface of algorithms. An algorithm computes advantages from outcomes, and a loss from
log-probabilities, without side effects.

Tensors are [rows, T], with 0 for tokens that were not sampled. The weights of tokens are computed
over all ranks and micro-batches, and the loss is a weighted sum. The gradient therefore does not
depend on how rows are divided into micro-batches.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol, Self

from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.late import Tensor, torch
from agentfly_core.rl.outcomes import Outcomes

Critic = Literal["none", "head", "model"]
OffPolicy = Literal["ratio", "imitation", "none"]


@dataclass(frozen=True)
class Advantages:
    """The advantages of sampled tokens, and the returns, which are the targets of the critic.

    Both tensors are [rows of the batch, T tokens].
    """

    advantages: Tensor
    returns: Tensor

    @classmethod
    def of(cls, advantages: Tensor) -> Self:
        """Make Advantages for an algorithm without a critic. All entries of `returns` are 0."""
        return cls(advantages, torch.zeros_like(advantages))


@dataclass(frozen=True)
class Outputs:
    """The outputs of the policy and of the critic for sampled tokens, each [rows, T].

    The entropies are detached. `values` contains the critic's estimate before each token.
    Without a critic, `values` is 0.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


@dataclass(frozen=True)
class Loss:
    """The loss of a micro-batch, with metrics of its tokens.

    Example: `Loss(tensor(0.031), {"train/clip_fraction": clipped})`. `total` is a weighted sum of
    token losses. Each metric has a value for each token, [rows, T], and the mean of these values is
    logged.
    """

    total: Tensor
    metrics: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The requirements of an algorithm on rollouts, updates and settings.

    GRPO has `Needs(old_logprobs=True, compares_group=True, off_policy="ratio")`.
    """

    reference: str | None = None
    """The reference policy, which computes `reference_logprobs`: `start` (the policy before step 1)
    or `run:NAME@STEP`. None if the algorithm does not use a reference policy.
    """

    old_logprobs: bool = False
    """Whether the algorithm reads `old_logprobs`, the log-probabilities of the policy before the
    update.
    """

    signals_before_advantages: bool = False
    """Whether advantages depend on log-probabilities or on values of the critic. These
    log-probabilities and values are then computed before the advantages.
    """

    greedy_episode: bool = False
    """Whether each problem has an additional greedy episode, whose reward is the baseline."""

    compares_group: bool = False
    """Whether advantages are differences from a baseline of the group. In a group with one episode
    or with equal rewards, such advantages are 0.
    """

    drops_equal_groups: bool = False
    """Whether groups with equal rewards are left out of the update (dynamic sampling). Means over
    tokens then exclude the tokens of these groups.
    """

    trains_all_rows: bool = False
    """Whether a row with advantages of 0 still has a gradient, from a critic or a KL penalty."""

    critic: Critic = "none"
    """The critic, which computes `Outputs.values`: a head on the last layer of the policy (`head`),
    a separate model (`model`), or none.
    """

    critic_rate: float = 1.0
    """The learning rate of the critic, as a multiple of the learning rate of the policy."""

    corrects_sampler: bool = False
    """Whether the loss has importance weights that correct differences between sampler and learner.
    """

    off_policy: OffPolicy = "none"
    """How the algorithm uses tokens of an older policy: with the ratio of probabilities (`ratio`),
    by imitation (`imitation`), or not at all (`none`).
    """


class Algorithm(Protocol):
    """An algorithm: a frozen dataclass with hyper-parameters as fields.

    The class attribute `refills` is the default of the setting `rollout.refills`: the maximum
    number of further sampling rounds in a step. If all episodes of a problem have the same
    reward, a further round replaces this problem by a new problem.
    """

    refills: ClassVar[int]

    @property
    def needs(self) -> Needs:
        """The requirements of this algorithm, which may depend on the hyper-parameters."""

    def after(self, before: Mapping[str, float]) -> Self:
        """Return the algorithm for the next update.

        `before` contains the metrics of the last update, and is empty before the first update. The
        returned algorithm may have other hyper-parameters.
        """

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        """Compute metrics before the first optimizer step of an update.

        The metrics are reported, and are passed to the method `after` at the start of the next
        update.
        """

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Compute the advantages from the outcomes (rewards, groups) of all trajectories."""

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Return the weight of each token in the loss, [rows, T].

        `batch` has all rows of an optimizer step.
        """

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """Compute the loss of a micro-batch.

        The loss of an optimizer step is the sum of the losses of its micro-batches.
        """


def log_ratio(now: Tensor, before: Tensor) -> Tensor:
    """Return `now - before`, clamped to [-20, 20] to keep `exp` of the result finite."""
    return (now - before).clamp(-20.0, 20.0)


def mismatch(learner: Tensor, sampler: Tensor) -> dict[str, float]:
    """Return metrics that compare the log-probabilities of the learner and of the sampler.

    Both arguments have the log-probabilities of the same n tokens, [n]. `k3` estimates
    KL(sampler || learner). `ess` is the effective sample size of the weights w = exp(learner -
    sampler), as a share of n. The result is empty if n is 0.
    """
    if not len(learner):
        return {}
    difference = log_ratio(learner.double(), sampler.double())
    weight = difference.exp()
    return {
        "mismatch/k3": float((weight - 1 - difference).mean()),
        "mismatch/max_abs_dlogp": float((learner - sampler).abs().max()),
        "mismatch/max_abs_weight_error": float((weight - 1).abs().max()),
        "mismatch/ess": float(weight.sum().square() / weight.square().sum() / len(weight)),
    }
