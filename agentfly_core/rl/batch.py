"""Trajectories as tensors, and the one shift between a model's outputs and the tokens that they predict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence

from agentfly_core.records.trajectory import Trajectory, Turn


@dataclass(frozen=True)
class RolloutBatch:
    """Rows of tokens, padded on the right; column t says something about token t, never about the next one.

    Two trajectories that answered "99" and "98"; the second was cut before its end of turn (token 2):

        tokens            [[1, 87, 4, 66, 66, 2], [1, 87, 4, 66, 65, 0]]    int64 [rows, T]
        lengths           [6, 5]                                            int64 [rows]
        sampled           [[F, F, F, T, T, T], [F, F, F, T, T, F]]          bool [rows, T]
        rollout_logprobs  [[0, 0, 0, -.1, -.7, -.01], [0, 0, 0, -.1, -2., 0]]   float32, as the sampler said
        trajectory        [0, 1]                                            int64 [rows], the row's trajectory
        turn              [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]          int64 [rows, T], the token's turn
        old_logprobs, reference_logprobs, old_values, returns, advantages, weight   float32 [rows, T]

    The last six are 0 where no token was sampled. `weight` is a token's share in the loss of its optimizer step,
    `returns` is what a critic should have said. A batch fresh from `pack` knows the sampler alone: its old and
    reference log-probabilities are the sampler's, and the other four are 0.
    """

    tokens: Tensor
    lengths: Tensor
    sampled: Tensor
    rollout_logprobs: Tensor
    trajectory: Tensor
    turn: Tensor
    old_logprobs: Tensor
    reference_logprobs: Tensor
    old_values: Tensor
    returns: Tensor
    advantages: Tensor
    weight: Tensor

    def select(self, chosen: Tensor) -> RolloutBatch:
        """The rows with these indices, no wider than the longest of them."""
        width = int(self.lengths[chosen].max())
        parts = {field.name: getattr(self, field.name)[chosen] for field in fields(self)}
        return RolloutBatch(**{name: part[:, :width] if part.dim() == 2 else part for name, part in parts.items()})

    def to(self, device: torch.device | str) -> RolloutBatch:
        """The same on another device."""
        return RolloutBatch(**{field.name: getattr(self, field.name).to(device) for field in fields(self)})


def pack(trajectories: Sequence[Trajectory]) -> RolloutBatch:
    """One row a trajectory, and one more for every turn in a fresh context; rows without a sampled token are left out.

    Raises ValueError when a row begins with a sampled token: nothing predicts it.
    """
    made = [(i, row) for i, t in enumerate(trajectories) if t.turns for row in rows(t.turns) if any(row.sampled)]
    if early := [trajectories[i].id for i, row in made if row.sampled[0]]:
        raise ValueError(f"Trajectory {early[0]} begins with a sampled token; a row must begin with a prompt.")
    logprobs = _padded([row.logprobs for _, row in made], torch.float32)
    return RolloutBatch(
        tokens=_padded([row.tokens for _, row in made], torch.int64),
        lengths=torch.tensor([len(row.tokens) for _, row in made], dtype=torch.int64),
        sampled=_padded([row.sampled for _, row in made], torch.bool),
        rollout_logprobs=logprobs,
        trajectory=torch.tensor([i for i, _ in made], dtype=torch.int64),
        turn=_padded([row.turn for _, row in made], torch.int64),
        old_logprobs=logprobs,
        reference_logprobs=logprobs,
        old_values=torch.zeros_like(logprobs),
        returns=torch.zeros_like(logprobs),
        advantages=torch.zeros_like(logprobs),
        weight=torch.zeros_like(logprobs),
    )


def predictors(sampled: Tensor) -> Tensor:
    """Where a model's output predicts a sampled token: the mask [rows, T] moved one column back. The only shift.

    `outputs[predictors(sampled)]` and `tokens[sampled]` speak of the same tokens in the same order.
    """
    return pad(sampled[:, 1:], (0, 1))


def token_logprobs(logits: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The log-probability [n] of each token and the entropy [n], without gradient, of what it was chosen from.

    `logits` [n, vocabulary] are those that predict `tokens` [n]; they are divided by the temperature in float32.
    """
    logprobs = torch.log_softmax(logits.float() / temperature, dim=-1)
    chosen = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)  # first: a checkpoint computes again up to here
    known = logprobs.detach()
    return chosen, -torch.einsum("nv,nv->n", known.exp(), known)


def micro_batches(lengths: Tensor, token_budget: int, ranks: int) -> list[list[Tensor]]:
    """For every rank its micro-batches, as indices of rows: all ranks have as many, the last may be empty.

    Rows are dealt out longest first, so that ranks have like loads; a micro-batch holds at most `token_budget` tokens,
    padding included, or a single row.
    """
    order = lengths.argsort(descending=True, stable=True)
    shares = [_cut(order[rank::ranks], lengths, token_budget) for rank in range(ranks)]
    count = max(len(share) for share in shares)
    return [share + [order[:0]] * (count - len(share)) for share in shares]


def _cut(longest_first: Tensor, lengths: Tensor, token_budget: int) -> list[Tensor]:
    cut = []
    while len(longest_first):
        take = max(1, token_budget // int(lengths[longest_first[0]]))
        cut.append(longest_first[:take])
        longest_first = longest_first[take:]
    return cut


def _padded(columns: Sequence[Sequence[float]], dtype: torch.dtype) -> Tensor:
    nothing = torch.zeros(0, dtype=dtype)
    return pad_sequence([nothing, *(torch.tensor(column, dtype=dtype) for column in columns)], batch_first=True)[1:]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of training text: `sampled[t]`: was token t chosen by the model, `turn[t]`: in which turn it stands.

    For tokens that were not sampled `logprobs[t]` is 0.0 and `versions[t]` is -1.
    """

    tokens: tuple[int, ...]
    sampled: tuple[bool, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    turn: tuple[int, ...]


def rows(turns: Sequence[Turn]) -> Iterator[Row]:
    """The rows of a trajectory: one, and one more for every turn that starts in a fresh context."""
    starts = [i for i, turn in enumerate(turns) if i == 0 or turn.fresh_context]
    for start, end in zip(starts, [*starts, len(turns)][1:], strict=True):
        tokens: list[int] = []
        sampled: list[bool] = []
        logprobs: list[float] = []
        versions: list[int] = []
        number: list[int] = []
        for index in range(start, end):
            given = turns[index].given.tokens
            tokens += given
            sampled += [False] * len(given)
            logprobs += [0.0] * len(given)
            versions += [-1] * len(given)
            for span in turns[index].sampled:
                tokens += span.tokens
                sampled += [True] * len(span.tokens)
                logprobs += span.logprobs
                versions += [span.policy_version] * len(span.tokens)
            number += [index] * (len(tokens) - len(number))
        yield Row(tuple(tokens), tuple(sampled), tuple(logprobs), tuple(versions), tuple(number))
