"""Correct differences between sampler and learner by importance weights w = exp(old - rollout).

`old` is the log-probability of a token that the learner computes, and `rollout` is the
log-probability that the sampler computed. No gradient flows through w. The methods `weights`
return a factor for the loss of each token. Some classes compute one w for each row, which applies
to all tokens of the row. The metric `mismatch/masked_share` is the share of tokens with w above
`cap`, or with w outside of the interval from `low` to `high`.

Posts: Yao, Liu et al., "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training"
(August 2025); Liu, Li et al., "When Speed Kills Stability: Demystifying RL Collapse from the
Training-Inference Mismatch" (September 2025).
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
    """Truncated importance sampling with the weight `min(w, cap)` for each token (Yao, Liu et al.).

    w is the token's probability with the learner, divided by its probability with the sampler.
    """

    use: Literal["token_tis"] = "token_tis"
    cap: Bound = 2.0

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        weight = log_ratio(batch.old_logprobs, batch.rollout_logprobs).exp()
        return _weights(weight.clamp(max=self.cap), weight > self.cap)


class SequenceTIS(Section):
    """Truncated importance sampling with the weight `min(w, cap)` for all tokens of a row (Liu, Li
    et al.).

    w is the product of the ratios of the row's tokens. A token's ratio is its probability with the
    learner, divided by its probability with the sampler.
    """

    use: Literal["sequence_tis"] = "sequence_tis"
    cap: Bound = 2.0

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        # for padding and given tokens, both log-probabilities are equal, so they add 0
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
    """The weight of a token is w if `low <= w <= high`, and 0 otherwise (Ring-1T, arXiv
    2510.18855).

    w is the token's probability with the learner, divided by its probability with the sampler.
    """

    use: Literal["icepop"] = "icepop"
    high: Bound = 5.0

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        weight = log_ratio(batch.old_logprobs, batch.rollout_logprobs).exp()
        beyond = (weight < self.low) | (weight > self.high)
        return _weights(weight.masked_fill(beyond, 0.0), beyond)


class SequenceMask(_Between):
    """The weight of a row is 1 if `low <= w <= high`, and 0 otherwise (Liu, Li et al.).

    w is the geometric mean of the ratios of the row's sampled tokens. A token's ratio is its
    probability with the learner, divided by its probability with the sampler.
    """

    use: Literal["sequence_mask"] = "sequence_mask"

    def weights(self, batch: RolloutBatch) -> TokenLosses:
        mean = row_means(log_ratio(batch.old_logprobs, batch.rollout_logprobs), batch).exp()
        beyond = ((mean < self.low) | (mean > self.high)).expand_as(batch.sampled)
        return _weights((~beyond).float(), beyond)


ImportanceSampling = Annotated[
    TokenTIS | SequenceTIS | IcePop | SequenceMask, Field(discriminator="use"), BY_NAME
]
"""The setting `correction`. In an experiment file, it is written as `{use: token_tis, cap: 2.0}`,
or as `icepop` for the defaults.
"""


def _weights(weight: Tensor, beyond: Tensor) -> TokenLosses:
    return TokenLosses(weight.detach(), {"mismatch/masked_share": beyond.float()})
