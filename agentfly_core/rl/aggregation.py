"""Weights [rows, T] of sampled tokens in the loss of an optimizer step, computed over all ranks.

A sequence is a trajectory, even if it has several rows.
"""

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.section import BY_NAME, Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.late import Tensor, torch


class TokenMean(Section):
    """The mean over all sampled tokens of the step (DAPO, arXiv 2503.14476): long replies count
    more.
    """

    use: Literal["token_mean"] = "token_mean"

    def weights(self, batch: RolloutBatch) -> Tensor:
        return batch.sampled / batch.sampled.sum().clamp(min=1)


class SeqMeanTokenMean(Section):
    """The mean over trajectories of the mean over their tokens (GRPO, 2402.03300): all trajectories
    count equally.
    """

    use: Literal["seq_mean_token_mean"] = "seq_mean_token_mean"

    def weights(self, batch: RolloutBatch) -> Tensor:
        tokens, count = _per_trajectory(batch)
        return batch.sampled / (count * tokens.clamp(min=1))


class SeqMeanTokenSum(Section):
    """The mean over trajectories of the sum over their tokens (RLOO, arXiv 2402.14740)."""

    use: Literal["seq_mean_token_sum"] = "seq_mean_token_sum"

    def weights(self, batch: RolloutBatch) -> Tensor:
        _, count = _per_trajectory(batch)
        return batch.sampled / float(count)


class SeqSumNorm(Section):
    """The mean over trajectories of the sum over their tokens, divided by `horizon`.

    See 2503.20783 (Dr. GRPO).
    """

    use: Literal["seq_sum_norm"] = "seq_sum_norm"
    horizon: Annotated[int, Field(ge=1)]

    def weights(self, batch: RolloutBatch) -> Tensor:
        _, count = _per_trajectory(batch)
        return batch.sampled / float(count * self.horizon)


Aggregation = Annotated[
    TokenMean | SeqMeanTokenMean | SeqMeanTokenSum | SeqSumNorm, Field(discriminator="use"), BY_NAME
]
"""Written in an experiment file as `token_mean`, or as `{use: seq_sum_norm, horizon: 512}`."""


def _per_trajectory(batch: RolloutBatch) -> tuple[Tensor, int]:
    """Return the number of sampled tokens of each row's trajectory [rows, 1], and the number of
    trajectories with sampled tokens.
    """
    numbers, index = torch.unique(batch.trajectory, return_inverse=True)
    tokens = torch.zeros(len(numbers), dtype=torch.int64).index_add(
        0, index, batch.sampled.sum(dim=1)
    )
    return tokens[index].unsqueeze(1), max(int(tokens.count_nonzero()), 1)
