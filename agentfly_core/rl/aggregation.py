"""Aggregation: the weights with which token losses are summed to the loss of an optimizer step.

Each class computes the weights [rows, T] of sampled tokens. The batch has the rows of all ranks.
"Seq" in names means a trajectory, even if the trajectory has several rows of the batch.
"""

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.section import BY_NAME, Section
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.late import Tensor, torch


class TokenMean(Section):
    """The mean of the losses of all sampled tokens in the step (DAPO, arXiv 2503.14476).

    Long replies therefore count more than short replies.
    """

    use: Literal["token_mean"] = "token_mean"

    def weights(self, batch: RolloutBatch) -> Tensor:
        return batch.sampled / batch.sampled.sum().clamp(min=1)


class SeqMeanTokenMean(Section):
    """The mean loss of each trajectory's tokens, averaged over trajectories (GRPO, arXiv
    2402.03300). All trajectories count equally.
    """

    use: Literal["seq_mean_token_mean"] = "seq_mean_token_mean"

    def weights(self, batch: RolloutBatch) -> Tensor:
        tokens, count = _per_trajectory(batch)
        return batch.sampled / (count * tokens.clamp(min=1))


class SeqMeanTokenSum(Section):
    """The summed losses of each trajectory's tokens, averaged over trajectories (RLOO, arXiv
    2402.14740).
    """

    use: Literal["seq_mean_token_sum"] = "seq_mean_token_sum"

    def weights(self, batch: RolloutBatch) -> Tensor:
        _, count = _per_trajectory(batch)
        return batch.sampled / float(count)


class SeqSumNorm(Section):
    """The summed losses of each trajectory's tokens, averaged over trajectories and divided by the
    constant `horizon` (Dr. GRPO, arXiv 2503.20783).
    """

    use: Literal["seq_sum_norm"] = "seq_sum_norm"
    horizon: Annotated[int, Field(ge=1)]

    def weights(self, batch: RolloutBatch) -> Tensor:
        _, count = _per_trajectory(batch)
        return batch.sampled / float(count * self.horizon)


Aggregation = Annotated[
    TokenMean | SeqMeanTokenMean | SeqMeanTokenSum | SeqSumNorm, Field(discriminator="use"), BY_NAME
]
"""The setting `aggregation`, written in an experiment file as `token_mean`, or as
`{use: seq_sum_norm, horizon: 512}`.
"""


def _per_trajectory(batch: RolloutBatch) -> tuple[Tensor, int]:
    """Return, for each row, the number of sampled tokens of the row's trajectory, [rows, 1].

    Also returns the number of trajectories with sampled tokens.
    """
    numbers, index = torch.unique(batch.trajectory, return_inverse=True)
    tokens = torch.zeros(len(numbers), dtype=torch.int64).index_add(
        0, index, batch.sampled.sum(dim=1)
    )
    return tokens[index].unsqueeze(1), max(int(tokens.count_nonzero()), 1)
