"""Correct differences between sampler and learner by the weight w = exp(old - rollout).

`old` and `rollout` are a token's log-probabilities by learner and sampler; w carries no gradient.
`weights` returns a factor for each token's loss. The metric `mismatch/masked_share` is the share of
tokens whose factor a bound changed. Posts: Yao, Liu et al., "Your Efficient RL Framework Secretly
Brings You Off-Policy RL Training" (August 2025); Liu, Li et al., "When Speed Kills Stability:
Demystifying RL Collapse from the Training-Inference Mismatch" (September 2025).
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from agentfly_core.config.section import BY_NAME, Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import log_ratio
from agentfly_core.rl.late import Tensor
from agentfly_core.rl.policy_loss import TokenLosses, row_means

Bound = Annotated[float, Field(gt=0.0)]


class TokenTIS(Section):
    """Truncated importance sampling with a weight per token: `min(w, cap)` (Yao, Liu et al.)."""

    use: Literal["token_tis"] = "token_tis"
    cap: Bound = 2.0

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        weight = log_ratio(batch.old_logprobs, batch.rollout_logprobs).exp()
        return _weights(weight.clamp(max=self.cap), weight > self.cap)


class SequenceTIS(Section):
    """Truncated importance sampling with a weight per row: `min(product of w, cap)` (Liu, Li et
    al.).
    """

    use: Literal["sequence_tis"] = "sequence_tis"
    cap: Bound = 2.0

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        # padding and given tokens have the same log-probability in both, so they add 0
        total = (batch.old_logprobs - batch.rollout_logprobs).sum(dim=1, keepdim=True)
        weight = log_ratio(total, total.new_zeros(())).exp().expand_as(batch.old_logprobs)
        return _weights(weight.clamp(max=self.cap), weight > self.cap)


class _Between(Section):
    low: Bound = 0.5
    high: Bound = 2.0

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"low is {self.low:g} and high is {self.high:g}; expected low <= high")
        return self


class IcePop(_Between):
    """Weight tokens by w; drop them if w is below low or above high (Ring-1T, 2510.18855)."""

    use: Literal["icepop"] = "icepop"
    high: Bound = 5.0

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        weight = log_ratio(batch.old_logprobs, batch.rollout_logprobs).exp()
        beyond = (weight < self.low) | (weight > self.high)
        return _weights(weight.masked_fill(beyond, 0.0), beyond)


class SequenceMask(_Between):
    """Drop rows with a geometric mean of w below low or above high. Other rows have the weight 1
    (Liu, Li et al.).
    """

    use: Literal["sequence_mask"] = "sequence_mask"

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        mean = row_means(log_ratio(batch.old_logprobs, batch.rollout_logprobs), batch).exp()
        beyond = ((mean < self.low) | (mean > self.high)).expand_as(batch.sampled)
        return _weights((~beyond).float(), beyond)


ImportanceSampling = Annotated[
    TokenTIS | SequenceTIS | IcePop | SequenceMask, Field(discriminator="use"), BY_NAME
]
"""Written in experiment files as `{use: token_tis, cap: 2.0}`, or as `icepop` for its defaults."""


def _weights(weight: Tensor, beyond: Tensor) -> TokenLosses:
    return TokenLosses(weight.detach(), {"mismatch/masked_share": beyond.float()})
