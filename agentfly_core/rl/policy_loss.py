"""Policy losses. A policy loss is computed for each sampled token. `rl.aggregation` then weights
the tokens. In the formulas, A is the advantage of the token.

The metric `train/clip_fraction` is the share of tokens whose loss is clipped, i.e. changed by one
of the bounds `low`, `high` and `dual`.
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
    """The loss of each token, and metrics of each token:
    `TokenLosses(tensor([[0., .1, -.2]]), {"train/clip_fraction": tensor([[0., 0., 1.]])})`.

    All tensors are [rows, T]. For logging, metrics are averaged over sampled tokens.
    """

    tokens: Tensor
    metrics: Mapping[str, Tensor]


def row_means(tokens: Tensor, batch: RolloutBatch) -> Tensor:
    """Return the mean of values over the sampled tokens of each row, [rows, 1].

    The mean is 0 for a row without sampled tokens.
    """
    count = batch.sampled.sum(dim=1, keepdim=True).clamp(min=1)
    # for a row without sampled tokens, this is 0 / 1, because 0 / 0 would be nan
    return (tokens * batch.sampled).sum(dim=1, keepdim=True) / count


class _PolicyLoss(Section):
    """The base class of policy losses.

    `needs_old` is True if the loss reads the log-probabilities of the policy before the update.
    """

    needs_old: ClassVar[bool] = True


class CISPO(_PolicyLoss):
    """The loss `-clip(rho, 1 - low, 1 + high) A log p`. The clipped ratio has no gradient.

    A is the advantage of the token. p is the token's probability. rho is p / p_old, where p_old is
    the probability before the update. With the defaults, the clipped ratio is between 0 and 5.
    """

    use: Literal["cispo"] = "cispo"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    high: Annotated[float, Field(ge=0.0)] = 4.0

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        # the weight is a constant, so tokens beyond the bounds have a gradient, unlike in Clip
        rho = log_ratio(outputs.logprobs, batch.old_logprobs).exp().detach()
        weight = rho.clamp(1.0 - self.low, 1.0 + self.high)
        loss = -weight * batch.advantages * outputs.logprobs
        return TokenLosses(loss, {"train/clip_fraction": (weight != rho).float()})


class Clip(_PolicyLoss):
    """The loss `max(-A rho, -A clip(rho, 1 - low, 1 + high))` of PPO.

    A is the advantage of the token. rho is p / p_old. p is the token's probability, and p_old is
    its probability before the update. `low` and `high` may differ, as in DAPO (arXiv 2503.14476).
    With `dual`, the loss of a token with A < 0 is at most `-A dual` (arXiv 1912.09729).
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
            # for A < 0, the clipped loss grows with rho without a bound; `dual` is the bound
            bound = -estimate * self.dual
            over = (estimate < 0) & (loss > bound)
            loss, clipped = torch.where(over, bound, loss), clipped | over
        return TokenLosses(loss, {"train/clip_fraction": clipped.float()})


class DPPO(_PolicyLoss):
    """The loss `-A rho`. Tokens with a probability that has changed too much get the loss 0.

    A is the advantage of the token. rho is p / p_old. p is the token's probability, and p_old is
    its probability before the update. q is the probability that the sampler computed. The loss is 0
    if A > 0 and p - q > high, or if A <= 0 and p - q < -low. The ratio of a rare
    token changes strongly with a tiny change of p. So the limits apply to the difference p - q, not
    to the ratio.
    """

    use: Literal["dppo_tv"] = "dppo_tv"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    high: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        # probabilities are compared and not their ratio, because a tiny change of the probability
        # of a rare token changes the ratio very much
        moved = outputs.logprobs.detach().exp() - batch.rollout_logprobs.exp()
        good = batch.advantages > 0
        dropped = (good & (moved > self.high)) | (~good & (moved < -self.low))
        loss = -batch.advantages * log_ratio(outputs.logprobs, batch.old_logprobs).exp()
        return TokenLosses(loss.masked_fill(dropped, 0.0), {"train/clip_fraction": dropped.float()})


class GSPO(_PolicyLoss):
    """The loss `max(-A s, -A clip(s, 1 - low, 1 + high))` of GSPO.

    A is the advantage of the token. s is the geometric mean of the ratios p / p_old of all sampled
    tokens in the token's row of the batch. p is a token's probability, and p_old is its probability
    before the update. The gradient of s is s times the gradient of the token's own log p, as in the
    variant GSPO-token of the paper.
    """

    use: Literal["gspo"] = "gspo"
    low: Annotated[float, Field(ge=0.0, le=1.0)] = 3e-4
    high: Annotated[float, Field(ge=0.0)] = 4e-4

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        mean = row_means(log_ratio(outputs.logprobs, batch.old_logprobs).detach(), batch)
        # the value is exp(mean), because both log-probabilities cancel; the gradient is the
        # gradient of the token's own log-probability
        s = (mean + outputs.logprobs - outputs.logprobs.detach()).exp()
        free = -batch.advantages * s
        loss = torch.maximum(free, -batch.advantages * s.clamp(1.0 - self.low, 1.0 + self.high))
        return TokenLosses(loss, {"train/clip_fraction": (loss > free).float()})


class Reinforce(_PolicyLoss):
    """The loss `-A log p`. A is the advantage of the token, and p is its probability."""

    needs_old: ClassVar[bool] = False
    use: Literal["reinforce"] = "reinforce"

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        return TokenLosses(-batch.advantages * outputs.logprobs, {})


class SAPO(_PolicyLoss):
    """The loss `-A sigmoid(tau (rho - 1)) 4 / tau`.

    A is the advantage of the token. rho is p / p_old. p is the token's probability, and p_old is
    its probability before the update. At rho = 1, the gradient of the loss equals the gradient of
    `-A rho`. The gradient becomes smaller as the distance of rho from 1 increases.

    Tokens with A > 0 use `tau`, and all other tokens use `tau_bad`. A larger value makes the
    gradient decrease faster. The metric `train/gate` is the slope of the sigmoid, relative to its
    slope at rho = 1.
    """

    use: Literal["sapo"] = "sapo"
    tau: Annotated[float, Field(gt=0.0)] = 1.0
    tau_bad: Annotated[float, Field(gt=0.0)] = 1.05

    def tokens(self, outputs: Outputs, batch: RolloutBatch) -> TokenLosses:
        rho = log_ratio(outputs.logprobs, batch.old_logprobs).exp()
        tau = torch.where(batch.advantages > 0, self.tau, self.tau_bad)
        gate = torch.sigmoid(tau * (rho - 1))
        # the derivative of the gate g is tau g (1 - g); with the factor 4 / tau, it is 1 at rho = 1
        slope = (4 * gate * (1 - gate)).detach()
        return TokenLosses(-batch.advantages * gate * 4 / tau, {"train/gate": slope})


PolicyLoss = Annotated[
    Clip | GSPO | CISPO | SAPO | DPPO | Reinforce, Field(discriminator="use"), BY_NAME
]
"""The setting `policy_loss`. In an experiment file, it is written as `{use: clip, high: 0.28}`. The
name alone, such as `gspo`, selects the default values of that loss.
"""
