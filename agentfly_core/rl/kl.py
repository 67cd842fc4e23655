"""Keeping near a reference policy: estimates of the divergence, in the loss or in the reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from agentfly_core.config.experiment import step_named
from agentfly_core.config.section import BY_NAME, Section
from agentfly_core.rl.interface import log_ratio

Kind = Literal["k1", "k2", "k3", "abs"]
Weight = Annotated[float, Field(gt=0.0)]
START = "start"


def _a_policy(where: str) -> str:
    if where != START and not step_named(where):
        raise ValueError(f"got {where!r}, expected {START}, or run:NAME@STEP such as run:nightly-2026-11-20@40")
    return where


Reference = Annotated[str, AfterValidator(_a_policy)]
"""The policy to stay near: `start`, the one that training started from, or `run:NAME@STEP`, another run's."""


def kl(logprobs: Tensor, reference: Tensor, kind: Kind) -> Tensor:
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


class LossKL(Section):
    """`weight` times the divergence is added to the loss; not k1, whose gradient vanishes on-policy."""

    use: Literal["loss"] = "loss"
    weight: Weight = 0.001
    kind: Literal["k2", "k3", "abs"] = "k3"
    reference: Reference = START


class RewardKL(Section):
    """`weight` times the divergence is taken off each token's reward (InstructGPT, arXiv 2203.02155)."""

    use: Literal["reward"] = "reward"
    weight: Weight = 0.001
    kind: Kind = "k1"
    reference: Reference = START

    def after(self, before: Mapping[str, float]) -> RewardKL:
        """The weight stays."""
        return self


class AdaptiveKL(RewardKL):
    """The same with a weight that keeps the divergence near a target (arXiv 1909.08593, section 2.2).

    After n trajectories it is multiplied with `1 + clip(measured / target - 1, -0.2, 0.2) n / horizon`.
    """

    use: Literal["adaptive"] = "adaptive"  # type: ignore[assignment]
    target: Weight = 0.01
    horizon: Weight = 10_000.0

    def after(self, before: Mapping[str, float]) -> AdaptiveKL:
        """The weight after an update with these metrics; one that nothing was sampled for does not change it."""
        weight = before.get("train/kl_weight", self.weight)
        if "train/kl_reference" not in before:
            return self.model_copy(update={"weight": weight})
        beyond = min(max(before["train/kl_reference"] / self.target - 1, -0.2), 0.2)
        factor = 1 + beyond * before["train/trajectories"] / self.horizon
        return self.model_copy(update={"weight": weight * factor})


KL = Annotated[LossKL | RewardKL | AdaptiveKL, Field(discriminator="use"), BY_NAME]
"""In an experiment file `{use: loss, weight: 0.001, kind: k2}`."""
