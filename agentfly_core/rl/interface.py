"""What an algorithm is: from outcomes to advantages, and from log-probabilities to a loss. Pure functions of tensors.

Tensors are [rows, T] and 0 where a token was not sampled. Each token carries its weight, global over the ranks and
micro-batches of its optimizer step, and the loss is a plain sum: the gradient is the same for any split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.outcomes import Outcomes

Critic = Literal["none", "head", "model"]
OffPolicy = Literal["ratio", "imitation", "none"]


@dataclass(frozen=True)
class Advantages:
    """How much better than expected each sampled token did: `advantages` [rows, T]; and a critic's goals, `returns`."""

    advantages: Tensor
    returns: Tensor

    @classmethod
    def of(cls, advantages: Tensor) -> Advantages:
        """Without a critic."""
        return cls(advantages, torch.zeros_like(advantages))


@dataclass(frozen=True)
class Outputs:
    """What the policy says now of the sampled tokens, and a critic: all [rows, T], differentiable but for the entropy.

    `values` are what the critic expects before each token, 0 without a critic.
    """

    logprobs: Tensor
    entropy: Tensor
    values: Tensor


@dataclass(frozen=True)
class Loss:
    """The `total` to differentiate, a weighted sum over tokens, and per-token `metrics` [rows, T] that are averaged.

    `Loss(tensor(0.031), {"train/clip_fraction": clipped})`
    """

    total: Tensor
    metrics: Mapping[str, Tensor]


class Algorithm(Protocol):
    """A frozen dataclass whose fields are its hyper-parameters.

    `refills` is `rollout.refills` of an experiment that does not say it.
    """

    refills: ClassVar[int]

    @property
    def reference(self) -> str | None:
        """The policy whose `reference_logprobs` it needs, `start` or `run:NAME@STEP`; None if it needs none."""
        ...

    @property
    def needs_old(self) -> bool:
        """Whether `old_logprobs` are those of the policy before the update."""
        ...

    @property
    def off_policy(self) -> OffPolicy:
        """What the loss makes of tokens of another policy: a `ratio` to it, `imitation` of any, or `none` is right."""
        ...

    @property
    def credits_signals(self) -> bool:
        """Whether `credit` reads log-probabilities or values, so that they must be there before the first step."""
        ...

    @property
    def needs_greedy(self) -> bool:
        """Whether each problem is played once more, greedily, for `Outcomes.baselines`."""
        ...

    @property
    def compares_group(self) -> bool:
        """Whether a trajectory's advantage comes from comparing it with its group: equal rewards teach nothing."""
        ...

    @property
    def drops_equal(self) -> bool:
        """Whether groups whose rewards are all equal are left out, so that they do not count as tokens either."""
        ...

    @property
    def learns_anyway(self) -> bool:
        """Whether rows whose advantages are all 0 have a gradient, too: by a critic, or by a penalty in the loss."""
        ...

    @property
    def critic(self) -> Critic:
        """What `Outputs.values` come from: a head on the policy's own layers, a model beside it, or nothing."""
        ...

    @property
    def critic_rate(self) -> float:
        """How many times as fast as the policy a critic's own weights learn."""
        ...

    @property
    def corrects_sampler(self) -> bool:
        """Whether the loss weighs tokens by how much likelier the old policy makes them than the sampler did."""
        ...

    def after(self, before: Mapping[str, float]) -> Algorithm:
        """The algorithm as it goes on from an update with these metrics; without any, from its settings."""
        ...

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        """What is worth telling, and what `after` needs, of an update before its first step."""
        ...

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """From outcomes to advantages, over the whole update."""
        ...

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Each sampled token's share in the loss; `batch` holds all rows of one optimizer step, with advantages."""
        ...

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """The loss of a micro-batch: the part of the optimizer step's sum that lies in these rows."""
        ...


def log_ratio(now: Tensor, before: Tensor) -> Tensor:
    """`now - before`, kept within -20 and 20 so that its exponential stays finite."""
    return (now - before).clamp(-20.0, 20.0)


def mismatch(learner: Tensor, sampler: Tensor) -> dict[str, float]:
    """How far the learner's log-probabilities [n] of the same policy are from the sampler's [n].

    `k3` estimates KL(sampler || learner); `ess` is the effective sample size of the weights w = exp(learner - sampler)
    as a share of n. Nothing of no tokens.
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


