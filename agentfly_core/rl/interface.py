"""The interface of algorithms: pure functions that compute advantages from outcomes, and a loss
from log-probabilities.

Tensors are [rows, T], with 0 for tokens that were not sampled. Token weights are computed over all
ranks and micro-batches, and the loss is a weighted sum. So every split into micro-batches has the
same gradient.
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
    """The `advantages` [rows, T] of sampled tokens, and the `returns` [rows, T], which are the
    critic's targets.
    """

    advantages: Tensor
    returns: Tensor

    @classmethod
    def of(cls, advantages: Tensor) -> Self:
        """Make the result of an algorithm without a critic."""
        return cls(advantages, torch.zeros_like(advantages))


@dataclass(frozen=True)
class Outputs:
    """Outputs of policy and critic at sampled tokens [rows, T]. Entropies carry no gradient.

    `values` are the critic's estimates before each token, 0 without a critic.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


@dataclass(frozen=True)
class Loss:
    """A loss: `total` is a weighted sum over tokens; `metrics` [rows, T] are averaged for logging.

    `Loss(tensor(0.031), {"train/clip_fraction": clipped})`
    """

    total: Tensor
    metrics: Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class Needs:
    """Requirements of an algorithm on rollouts, updates and settings.

    GRPO has `Needs(old_logprobs=True, compares_group=True, off_policy="ratio")`.
    """

    reference: str | None = None
    """The policy of `reference_logprobs`, `start` or `run:NAME@STEP`."""

    old_logprobs: bool = False
    """The algorithm reads `old_logprobs`: log-probabilities under the policy before the update."""

    signals_before_advantages: bool = False
    """Advantages depend on log-probabilities or values, which are then computed first."""

    greedy_episode: bool = False
    """Each problem has one more episode, played greedily, for `Outcomes.baselines`."""

    compares_group: bool = False
    """Advantages have a group baseline: they are 0 in a group with one episode or with equal
    rewards.
    """

    drops_equal_groups: bool = False
    """Groups of equal rewards are left out of the update, their tokens too (dynamic sampling)."""

    trains_all_rows: bool = False
    """Rows with advantages of 0 have a gradient too: from a critic or a KL penalty."""

    critic: Critic = "none"
    """Source of `Outputs.values`: a head on the policy's last layer, or a separate model."""

    critic_rate: float = 1.0
    """The learning rate of the critic's own weights, as a multiple of the policy's."""

    corrects_sampler: bool = False
    """The loss has importance weights for differences between sampler and learner."""

    off_policy: OffPolicy = "none"
    """How an older policy's tokens are used: with a probability `ratio`, by `imitation`, or not."""


class Algorithm(Protocol):
    """A frozen dataclass with hyper-parameters as fields.

    The class attribute `refills` is the default of `rollout.refills`.
    """

    refills: ClassVar[int]

    @property
    def needs(self) -> Needs:
        """The requirements of this algorithm, which may depend on its hyper-parameters."""

    def after(self, before: Mapping[str, float]) -> Self:
        """Return the algorithm for the next update, adapted to the last update's metrics `before`,
        which are empty at first.
        """

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        """Compute metrics before the update's first optimizer step.

        The next update passes them to `after`.
        """

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Compute advantages from the outcomes of the whole update."""

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Return each token's weight in the loss. `batch` has all rows of an optimizer step."""

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """Compute the loss of a micro-batch. An optimizer step uses the sum of these losses."""


def log_ratio(now: Tensor, before: Tensor) -> Tensor:
    """Return `now - before`, clamped to [-20, 20] to keep its exponential finite."""
    return (now - before).clamp(-20.0, 20.0)


def mismatch(learner: Tensor, sampler: Tensor) -> dict[str, float]:
    """Return metrics that compare the learner's log-probabilities [n] of a policy with the
    sampler's [n].

    `k3` estimates KL(sampler || learner). `ess` is the effective sample size of the weights w =
    exp(learner - sampler), as a share of n. The result is empty without tokens.
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
