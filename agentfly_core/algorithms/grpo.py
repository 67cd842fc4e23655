"""Group relative policy optimisation (DeepSeekMath, arXiv 2402.03300), with the token mean of DAPO (2503.14476)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from agentfly_core.algorithm import KL, Credit, Group, Loss, Outputs, importance, kl, ppo_clip, spread, token_mean
from agentfly_core.batch import RolloutBatch


@dataclass(frozen=True)
class GRPO:
    """`GRPO(clip_low=0.2, clip_high=0.28, kl_weight=0.001, kl_kind="k3", importance_cap=2.0)`

    `kl_weight` is that of the divergence from the reference policy, 0 leaves it out. `importance_cap` truncates the
    weight of a token that corrects for a sampler whose probabilities differ from the learner's; None: no correction.
    """

    needs_old: ClassVar[bool] = True
    clip_low: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    clip_high: Annotated[float, Field(ge=0.0)] = 0.2
    kl_weight: Annotated[float, Field(ge=0.0)] = 0.0
    kl_kind: KL = "k3"
    importance_cap: Annotated[float, Field(gt=0.0)] | None = None

    def __post_init__(self) -> None:
        if self.kl_kind == "k1":
            raise ValueError("Got kl_kind 'k1', whose gradient vanishes on-policy: use 'k2', 'k3' or 'abs'.")

    @property
    def needs_reference(self) -> bool:
        """Only with a weight on the divergence."""
        return self.kl_weight != 0.0

    def advantages(self, groups: Sequence[Group], batch: RolloutBatch) -> Credit:
        """A = (R - mean) / (std + 1e-6) over the trajectories of a group; 0 for one alone or where all are equal."""
        last = max((max(group.trajectories) for group in groups), default=-1)
        found = torch.zeros(last + 1, dtype=torch.float64)
        for group in groups:
            found[list(group.trajectories)] = _standardised(group.rewards)
        return Credit(spread(found, batch))

    def weights(self, batch: RolloutBatch) -> Tensor:
        """The mean over all sampled tokens of the optimizer step."""
        return token_mean(batch)

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        """The clipped loss, corrected for the sampler, plus the divergence from the reference."""
        loss, clipped = ppo_clip(outputs, batch, self.clip_low, self.clip_high)
        metrics = {"train/clip_fraction": clipped.float()}
        if self.importance_cap is not None:
            weight = importance(batch)
            loss = loss * weight.clamp(max=self.importance_cap)
            metrics["mismatch/capped_share"] = (weight > self.importance_cap).float()
        if self.needs_reference:
            divergence = kl(outputs.logprobs, batch.reference_logprobs, self.kl_kind)
            loss = loss + self.kl_weight * divergence
            metrics["train/kl_reference"] = divergence.detach()
        return Loss((batch.weight * loss).sum(), metrics)


def _standardised(rewards: Tensor) -> Tensor:
    if bool((rewards == rewards[0]).all()):
        return torch.zeros_like(rewards)
    return (rewards - rewards.mean()) / (rewards.std() + 1e-6)
