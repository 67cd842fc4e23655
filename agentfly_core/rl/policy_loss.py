"""Policy losses: the loss of each sampled token, before it is weighted.

`train/clip_fraction` is the share of tokens at or beyond a bound.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from agentfly_core.config.section import BY_NAME, Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Outputs, log_ratio
from agentfly_core.rl.late import Tensor, torch


@dataclass(frozen=True)
class TokenLosses:
    """The loss of each token [rows, T], and `metrics` [rows, T], which are averaged over sampled
    tokens.

    `TokenLosses(tensor([[0., .1, -.2]]), {"train/clip_fraction": tensor([[0., 0., 1.]])})`
    """

    tokens: Tensor
    metrics: Mapping[str, Tensor]


def row_means(tokens: Tensor, batch: RolloutBatch) -> Tensor:
    """Return the mean over each row's sampled tokens [rows, 1], 0 for a row without any."""
    count = batch.sampled.sum(dim=1, keepdim=True).clamp(min=1)
    # a row of padding has no sampled token; 0 / 1 keeps it out of the loss, 0 / 0 would not
    return (tokens * batch.sampled).sum(dim=1, keepdim=True) / count


class _PolicyLoss(Section):
    """Base class of losses. `needs_old`: the loss compares with the policy before the update."""

    needs_old: ClassVar[bool] = True


class CISPO(_PolicyLoss):
    """`-clip(rho, 1 - low, 1 + high) A log p`; the clipped ratio carries no gradient.

    rho is the probability ratio to the old policy. In the paper's defaults, `high` 4 limits the
    clipped ratio to 5, and `low` 1 sets no lower limit.
    """

    use: Literal["cispo"] = "cispo"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    high: Annotated[float, Field(ge=0.0)] = 4.0

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        # a constant weight: a token beyond the bounds keeps its gradient, unlike in Clip
        rho = log_ratio(outputs.logprobs, batch.old_logprobs).exp().detach()
        weight = rho.clamp(1.0 - self.low, 1.0 + self.high)
        loss = -weight * batch.advantages * outputs.logprobs
        return TokenLosses(loss, {"train/clip_fraction": (weight != rho).float()})


class Clip(_PolicyLoss):
    """`max(-A rho, -A clip(rho, 1 - low, 1 + high))`, rho: the probability ratio to the old policy.

    Separate bounds come from DAPO (2503.14476). With `dual`, the loss of a token with A < 0 is at
    most `-A dual` (1912.09729).
    """

    use: Literal["clip"] = "clip"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    high: Annotated[float, Field(ge=0.0)] = 0.2
    dual: Annotated[float, Field(gt=1.0)] | None = None

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        rho, estimate = log_ratio(outputs.logprobs, batch.old_logprobs).exp(), batch.advantages
        free = -estimate * rho
        loss = torch.maximum(free, -estimate * rho.clamp(1.0 - self.low, 1.0 + self.high))
        clipped = loss > free
        if self.dual is not None:
            # for A < 0 the maximum of the clipped objective is unbounded in rho; dual clipping caps
            # it
            bound = -estimate * self.dual
            over = (estimate < 0) & (loss > bound)
            loss, clipped = torch.where(over, bound, loss), clipped | over
        return TokenLosses(loss, {"train/clip_fraction": clipped.float()})


class DPPO(_PolicyLoss):
    """`-A rho`, but 0 for a token whose probability already moved too far with its advantage.

    Let p be the token's probability now, and q its probability when it was sampled. The loss is 0
    if A > 0 and p - q > high, or if A <= 0 and p - q < -low. Unlike bounds of the ratio, these
    bounds let rare tokens change.
    """

    use: Literal["dppo_tv"] = "dppo_tv"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    high: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        # probabilities instead of their ratio: a tiny change of a rare token's probability moves
        # the ratio out of any bound
        moved = outputs.logprobs.detach().exp() - batch.rollout_logprobs.exp()
        good = batch.advantages > 0
        dropped = (good & (moved > self.high)) | (~good & (moved < -self.low))
        loss = -batch.advantages * log_ratio(outputs.logprobs, batch.old_logprobs).exp()
        return TokenLosses(loss.masked_fill(dropped, 0.0), {"train/clip_fraction": dropped.float()})


class GSPO(_PolicyLoss):
    """`max(-A s, -A clip(s, 1 - low, 1 + high))`, s: the geometric mean of a row's token ratios.

    Each token's gradient goes through its own log-probability (the paper's GSPO-token).
    """

    use: Literal["gspo"] = "gspo"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 3e-4
    high: Annotated[float, Field(ge=0.0)] = 4e-4

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        mean = row_means(log_ratio(outputs.logprobs, batch.old_logprobs).detach(), batch)
        # the value is exp(mean): the two log-probabilities cancel in it, but they give the token's
        # own gradient
        s = (mean + outputs.logprobs - outputs.logprobs.detach()).exp()
        free = -batch.advantages * s
        loss = torch.maximum(free, -batch.advantages * s.clamp(1.0 - self.low, 1.0 + self.high))
        return TokenLosses(loss, {"train/clip_fraction": (loss > free).float()})


class Reinforce(_PolicyLoss):
    """`-A log p`. This loss takes no settings."""

    needs_old: ClassVar[bool] = False
    use: Literal["reinforce"] = "reinforce"

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        return TokenLosses(-batch.advantages * outputs.logprobs, {})


class SAPO(_PolicyLoss):
    """`-A sigmoid(tau (rho - 1)) 4 / tau`.

    At rho = 1 the loss has the same gradient as `-A rho`. The gradient shrinks as rho moves away
    from 1.

    `tau` applies to A > 0, and `tau_bad` to other tokens. `tau_bad` is larger, so that gradients of
    other tokens vanish sooner. The metric `train/gate` is the slope of the gate, 1 on-policy.
    """

    use: Literal["sapo"] = "sapo"
    tau: Annotated[float, Field(gt=0.0)] = 1.0
    tau_bad: Annotated[float, Field(gt=0.0)] = 1.05

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        rho = log_ratio(outputs.logprobs, batch.old_logprobs).exp()
        tau = torch.where(batch.advantages > 0, self.tau, self.tau_bad)
        gate = torch.sigmoid(tau * (rho - 1))
        # d/drho of the gate is tau g (1 - g); the factor 4 / tau makes it 1 at rho = 1
        slope = (4 * gate * (1 - gate)).detach()
        return TokenLosses(-batch.advantages * gate * 4 / tau, {"train/gate": slope})


PolicyLoss = Annotated[
    Clip | GSPO | CISPO | SAPO | DPPO | Reinforce, Field(discriminator="use"), BY_NAME
]
"""Written in an experiment file as `{use: clip, high: 0.28}`, or as `gspo` for the defaults."""
