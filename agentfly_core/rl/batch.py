"""Convert trajectories to tensors, and align the outputs of the model with the predicted tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields

from agentfly_core.records.trajectory import Ending, Given, Sampled, Trajectory
from agentfly_core.rl.late import Tensor, np, torch

TurnSpans = list[tuple[int, float | None, Given | Sampled]]
"""Spans of tokens, each with the index and the temperature of its turn."""
LIMITS = (Ending.MAX_TURNS, Ending.MAX_MODEL_LEN, Ending.MAX_SAMPLED_TOKENS)


@dataclass(frozen=True)
class RolloutBatch:
    """Rows of tokens, padded on the right. In fields [rows, T], column t belongs to token t.

    Example: two trajectories answered "99" and "98". The end-of-turn token is 2. The second
    trajectory lacks this token, because the reply reached the token limit.

        tokens            [[1, 87, 4, 66, 66, 2], [1, 87, 4, 66, 65, 0]]       int64 [rows, T]
        lengths           [6, 5]                                               int64 [rows]
        sampled           [[F, F, F, T, T, T], [F, F, F, T, T, F]]             bool [rows, T]
        rollout_logprobs  [[0, 0, 0, -.1, -.7, -.01], [0, 0, 0, -.1, -2., 0]]  float32 [rows, T]
        trajectory        [0, 1]                                               int64 [rows]
        cut               [F, T]                                               bool [rows]
        turn              [[0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]             int64 [rows, T]
        temperature       [[1, 1, 1, .7, .7, .7], [1, 1, 1, .7, .7, 1]]        float32 [rows, T]
        old_logprobs, reference_logprobs, old_values, returns,
        advantages, weight                                                     float32 [rows, T]

    - `trajectory`: the index of the trajectory of each row
    - `rollout_logprobs`: the log-probabilities that the sampler computed
    - `cut`: whether the trajectory of the row ended at a limit
    - `turn`: the index of the turn of each token
    - `old_logprobs`, `old_values`: outputs of the policy and of the critic before the update
    - `reference_logprobs`: computed with the reference policy of a KL penalty
    - `returns`: the targets of the critic
    - `weight`: the share of the token in the loss of its optimizer step

    For tokens that were not sampled, `temperature` is 1, and the fields from `old_logprobs` to
    `weight` are 0. In a new batch from `pack`, `old_logprobs` and `reference_logprobs` are copies
    of `rollout_logprobs`, and `old_values`, `returns`, `advantages` and `weight` are 0.
    """

    tokens: Tensor
    lengths: Tensor
    sampled: Tensor
    rollout_logprobs: Tensor
    trajectory: Tensor
    cut: Tensor
    turn: Tensor
    temperature: Tensor
    old_logprobs: Tensor
    reference_logprobs: Tensor
    old_values: Tensor
    returns: Tensor
    advantages: Tensor
    weight: Tensor

    def select(self, chosen: Tensor) -> RolloutBatch:
        """Return the rows with the indices `chosen`, without columns that contain only padding."""
        width = int(self.lengths[chosen].max())
        parts = {field.name: getattr(self, field.name)[chosen] for field in fields(self)}
        return RolloutBatch(
            **{name: part[:, :width] if part.dim() == 2 else part for name, part in parts.items()}
        )

    def to(self, device: torch.device | str) -> RolloutBatch:
        """Return a copy of the batch on a device."""
        return RolloutBatch(
            **{field.name: getattr(self, field.name).to(device) for field in fields(self)}
        )


def pack(trajectories: Sequence[Trajectory], temperature: float = 1.0) -> RolloutBatch:
    """Convert trajectories to a batch.

    Each context (sequence of tokens) with at least one trained token becomes a row. Trajectories of
    untrained speakers (`Trajectory.policy` is set) do not become rows. The field `turn` has indices
    into `Trajectory.turns`. If a turn lacks a recorded temperature, `temperature` is used. Raises
    ValueError if a row begins with a sampled token, because nothing predicts this token.
    """
    rows = [
        (i, spans)
        for i, trajectory in enumerate(trajectories)
        if not trajectory.policy
        for spans in _contexts(trajectory)
    ]
    tokens, sampled, logprobs, turn, temperatures = _columns(
        [spans for _, spans in rows], temperature
    )
    if bool(sampled[:, :1].any()):
        first = trajectories[rows[int(sampled[:, 0].nonzero()[0])][0]]
        raise ValueError(
            f"Trajectory {first.id} begins with a sampled token; a row must begin with a prompt."
        )
    nothing = torch.zeros_like(logprobs)
    return RolloutBatch(
        tokens=tokens,
        lengths=torch.tensor([_length(spans) for _, spans in rows], dtype=torch.int64),
        sampled=sampled,
        rollout_logprobs=logprobs,
        trajectory=torch.tensor([i for i, _ in rows], dtype=torch.int64),
        cut=torch.tensor([is_cut(trajectories[i]) for i, _ in rows], dtype=torch.bool),
        turn=turn,
        temperature=temperatures,
        # the sampler's values, for algorithms that need no forward pass before the update
        old_logprobs=logprobs,
        reference_logprobs=logprobs,
        old_values=nothing,
        returns=nothing,
        advantages=nothing,
        weight=nothing,
    )


def is_cut(trajectory: Trajectory) -> bool:
    """Whether a trajectory ended at a limit.

    This is true if the last reply was cut off, or if the episode ended at `max_turns`,
    `max_model_len` or `max_sampled_tokens`.
    """
    return any(turn.cut for turn in trajectory.turns[-1:]) or trajectory.ending in LIMITS


def _contexts(trajectory: Trajectory) -> list[TurnSpans]:
    """Return the spans of each context (sequence of tokens) with at least one trained token."""
    contexts: defaultdict[int, TurnSpans] = defaultdict(list)
    for number, turn in enumerate(trajectory.turns):
        trains = trajectory.trains(turn)
        spans: list[Given | Sampled] = [
            turn.given,
            # an untrained reply is treated as a prompt, because later tokens depend on it
            *(span if trains and span.trained else Given(span.tokens) for span in turn.sampled),
        ]
        contexts[turn.context] += [(number, turn.temperature, span) for span in spans]
    return [
        spans
        for _, spans in sorted(contexts.items())
        if any(isinstance(span, Sampled) and span.tokens for *_, span in spans)
    ]


def _length(spans: TurnSpans) -> int:
    return sum(len(span.tokens) for *_, span in spans)


def _columns(rows: Sequence[TurnSpans], temperature: float) -> tuple[Tensor, ...]:
    """Return five tensors [rows, T]: the tokens, the mask of sampled tokens, the log-probabilities,
    the indices of turns, and the temperatures.
    """
    shape = (len(rows), max(map(_length, rows), default=0))
    tokens, turn = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    sampled, logprobs = np.zeros(shape, np.bool_), np.zeros(shape, np.float32)
    temperatures = np.ones(shape, np.float32)
    for row, spans in enumerate(rows):
        end = 0
        for number, own, span in spans:
            start, end = end, end + len(span.tokens)
            tokens[row, start:end] = span.tokens
            turn[row, start:end] = number
            if isinstance(span, Sampled):
                # given tokens have the log-probability 0 and are not in the mask
                sampled[row, start:end] = True
                logprobs[row, start:end] = span.logprobs
                temperatures[row, start:end] = own or temperature
    return tuple(map(torch.from_numpy, (tokens, sampled, logprobs, turn, temperatures)))


def predictors(sampled: Tensor) -> Tensor:
    """Return the mask [rows, T] of the outputs that predict a sampled token.

    `sampled` is the mask of sampled tokens. An output predicts the token of the next column, so the
    result is `sampled` shifted by one column to the left. `outputs[predictors(sampled)]` and
    `tokens[sampled]` have the same order.
    """
    # the output at column t predicts the token at t + 1
    return torch.nn.functional.pad(sampled[:, 1:], (0, 1))


def token_logprobs(
    logits: Tensor, tokens: Tensor, temperature: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token [n], and the entropy of its distribution [n].

    `logits` [n, vocabulary] are the outputs that predict `tokens` [n]. The logits are divided by
    the temperature (a number or [n]) in float32. The entropy is computed without a gradient.
    """
    of_rows = temperature.unsqueeze(-1) if isinstance(temperature, torch.Tensor) else temperature
    logprobs = torch.log_softmax(logits.float() / of_rows, dim=-1)
    # gathered before the entropy, because activation checkpointing recomputes only up to here
    chosen = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    detached = logprobs.detach()
    return chosen, -torch.einsum("nv,nv->n", detached.exp(), detached)


def micro_batches(lengths: Tensor, token_budget: int, ranks: int) -> list[list[Tensor]]:
    """Divide rows among ranks and into micro-batches.

    `lengths` has the number of tokens of each row. The result has, for each rank, the row indices
    of each micro-batch. All ranks get the same number of micro-batches, so the last micro-batch of
    a rank may be empty. Rows are distributed by length, the longest first. A micro-batch has at
    most `token_budget` tokens, including padding. A row with more tokens gets its own micro-batch.
    """
    order = lengths.argsort(descending=True, stable=True)
    shares: list[list[Tensor]] = [[] for _ in range(ranks)]
    # Rows are given to the ranks one after the other, so each rank has rows of all lengths. Rows of
    # similar length are in the same micro-batch, so they need little padding.
    for rank, share in enumerate(shares):
        left = order[rank::ranks]
        while len(left):
            # the first row is the longest, so its length is the width of the micro-batch; a row
            # that is longer than the budget has its own micro-batch
            take = max(1, token_budget // int(lengths[left[0]]))
            share.append(left[:take])
            left = left[take:]
    count = max(len(share) for share in shares)
    # collective operations wait for every rank, so all ranks need the same number of passes
    return [share + [order[:0]] * (count - len(share)) for share in shares]
