"""What an algorithm is: from rewards to advantages, and from log-probabilities to a loss. Pure functions of tensors.

Tensors are [rows, T] and 0 where a token was not sampled. Each token carries its weight, global over the ranks and
micro-batches of its optimizer step, and the loss is a plain sum: the gradient is the same for any split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from agentfly_core.batch import RolloutBatch

KL = Literal["k1", "k2", "k3", "abs"]


@dataclass(frozen=True)
class Group:
    """The trajectories of one problem in one step: `Group((0, 1, 2, 3), tensor([1., 0., 0., 0.]))`.

    `trajectories` are indices into the batch's trajectories, `rewards` [n] float64 are theirs.
    """

    trajectories: tuple[int, ...]
    rewards: Tensor


@dataclass(frozen=True)
class Credit:
    """How much better than expected each sampled token did: `advantages` [rows, T]."""

    advantages: Tensor


@dataclass(frozen=True)
class Outputs:
    """What the policy says now of the sampled tokens: `logprobs` and `entropy` [rows, T], both differentiable."""

    logprobs: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class Loss:
    """The `total` to differentiate, a weighted sum over tokens, and per-token `metrics` [rows, T] that are averaged.

    `Loss(tensor(0.031), {"train/clip_fraction": clipped})`
    """

    total: Tensor
    metrics: Mapping[str, Tensor]


class Algorithm(Protocol):
    """A frozen dataclass whose fields are its hyper-parameters."""

    @property
    def needs_reference(self) -> bool:
        """Whether `reference_logprobs` are those of a reference policy."""
        ...

    @property
    def needs_old(self) -> bool:
        """Whether `old_logprobs` are those of the policy before the update."""
        ...

    def advantages(self, groups: Sequence[Group], batch: RolloutBatch) -> Credit:
        """From rewards to advantages, over the whole update; demonstrations come without groups."""
        ...

    def weights(self, batch: RolloutBatch) -> Tensor:
        """Each sampled token's share in the loss; `batch` holds all rows of one optimizer step."""
        ...

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """The loss of a micro-batch: the part of the optimizer step's sum that lies in these rows."""
        ...


def spread(values: Tensor, batch: RolloutBatch) -> Tensor:
    """Give every sampled token [rows, T] the value of its trajectory, from `values` [trajectories]."""
    return (values[batch.trajectory].unsqueeze(1) * batch.sampled).float()


def token_mean(batch: RolloutBatch) -> Tensor:
    """Weights [rows, T] that make the loss the mean over the optimizer step's sampled tokens (DAPO, 2503.14476)."""
    return batch.sampled / batch.sampled.sum()


def log_ratio(now: Tensor, before: Tensor) -> Tensor:
    """`now - before`, kept within -20 and 20 so that its exponential stays finite."""
    return (now - before).clamp(-20.0, 20.0)


def ppo_clip(outputs: Outputs, batch: RolloutBatch, low: float, high: float) -> tuple[Tensor, Tensor]:
    """PPO's clipped loss of each token (1707.06347, eq. 7) with a bound of its own on each side, and where it clips.

    `max(-A rho, -A clip(rho, 1 - low, 1 + high))` with rho the probability ratio to the old policy.
    """
    rho = log_ratio(outputs.logprobs, batch.old_logprobs).exp()
    free = -batch.advantages * rho
    bound = -batch.advantages * rho.clamp(1.0 - low, 1.0 + high)
    return torch.maximum(free, bound), bound > free


def kl(logprobs: Tensor, reference: Tensor, kind: KL) -> Tensor:
    """Estimates of KL(policy || reference) at tokens that the policy sampled (joschu.net/blog/kl-approx.html).

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


def importance(batch: RolloutBatch) -> Tensor:
    """How likely the learner finds each token compared with the sampler, `exp(old - rollout)`, a constant."""
    return log_ratio(batch.old_logprobs, batch.rollout_logprobs).detach().exp()


def mismatch(learner: Tensor, sampler: Tensor) -> dict[str, float]:
    """How far the learner's log-probabilities [n] of the same policy are from the sampler's [n].

    `k3` estimates KL(sampler || learner); `ess` is the effective sample size of the weights w = exp(learner - sampler)
    as a share of n.
    """
    weight = log_ratio(learner.double(), sampler.double()).exp()
    return {
        "mismatch/k3": float(kl(sampler.double(), learner.double(), "k3").mean()),
        "mismatch/max_abs_dlogp": float((learner - sampler).abs().max()),
        "mismatch/max_abs_weight_error": float((weight - 1).abs().max()),
        "mismatch/ess": float(weight.sum().square() / weight.square().sum() / len(weight)),
    }
