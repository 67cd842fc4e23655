"""Convert trajectories to tensors. Only this module shifts outputs to the tokens they predict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields

from agentfly_core.records.trajectory import Ending, Given, Sampled, Trajectory
from agentfly_core.rl.late import Tensor, np, torch

TurnSpans = list[tuple[int, float | None, Given | Sampled]]
"""Token spans, each with the number and the temperature of its turn."""
LIMITS = (Ending.MAX_TURNS, Ending.MAX_MODEL_LEN, Ending.MAX_SAMPLED_TOKENS)


@dataclass(frozen=True)
class RolloutBatch:
    """Rows of tokens, padded on the right. Column t describes token t, not the next token.

    In this example, two trajectories answered "99" and "98". The token limit cut the second before
    its end-of-turn token, 2:

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

    `rollout_logprobs` come from the sampler. `cut` rows belong to trajectories that ended at a
    limit. `returns` are value targets, and `weight` is a token's share in the loss of its optimizer
    step. For tokens that were not sampled, `temperature` is 1 and the last six fields are 0.
    `pack` fills `old_logprobs` and `reference_logprobs` with the sampler's log-probabilities, and
    the other four with 0.
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
        """Select the rows with these indices, and cut the padding that no selected row needs."""
        width = int(self.lengths[chosen].max())
        parts = {field.name: getattr(self, field.name)[chosen] for field in fields(self)}
        return RolloutBatch(
            **{name: part[:, :width] if part.dim() == 2 else part for name, part in parts.items()}
        )

    def to(self, device: torch.device | str) -> RolloutBatch:
        """Copy the batch to a device."""
        return RolloutBatch(
            **{field.name: getattr(self, field.name).to(device) for field in fields(self)}
        )


def pack(trajectories: Sequence[Trajectory], temperature: float = 1.0) -> RolloutBatch:
    """Make a row of each context (one sequence of tokens) with a trained token.

    Only trained speakers have rows. Turns are numbered as in `Trajectory.turns`. `temperature` is
    used for replies that record none. Raises ValueError if a row begins with a sampled token,
    because no output predicts that token.
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
    """Whether the trajectory ended at a limit: of its last reply, its turns or its context."""
    return any(turn.cut for turn in trajectory.turns[-1:]) or trajectory.ending in LIMITS


def _contexts(trajectory: Trajectory) -> list[TurnSpans]:
    """Return the spans of each context that has a trained token, with their turn numbers."""
    contexts: defaultdict[int, TurnSpans] = defaultdict(list)
    for number, turn in enumerate(trajectory.turns):
        trains = trajectory.trains(turn)
        spans: list[Given | Sampled] = [
            turn.given,
            # an untrained reply is used like a prompt: later tokens depend on it, and it has no
            # loss
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
    """Return tokens, mask of sampled tokens, log-probabilities, turns and temperatures, each [rows,
    T].
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
                # given tokens have log-probability 0 and are outside of the mask, so that no loss
                # can touch them
                sampled[row, start:end] = True
                logprobs[row, start:end] = span.logprobs
                temperatures[row, start:end] = own or temperature
    return tuple(map(torch.from_numpy, (tokens, sampled, logprobs, turn, temperatures)))


def predictors(sampled: Tensor) -> Tensor:
    """Return the mask [rows, T] of the outputs that predict a sampled token.

    Then `outputs[predictors(sampled)]` and `tokens[sampled]` are aligned. Columns are shifted only
    in this function.
    """
    # the output at column t predicts the token at t + 1
    return torch.nn.functional.pad(sampled[:, 1:], (0, 1))


def token_logprobs(
    logits: Tensor, tokens: Tensor, temperature: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each token [n], and the entropy of its distribution [n].

    The entropy carries no gradient. `logits` [n, vocabulary] predict `tokens` [n]. The logits are
    divided by the temperature (a number or [n]) in float32.
    """
    of_rows = temperature.unsqueeze(-1) if isinstance(temperature, torch.Tensor) else temperature
    logprobs = torch.log_softmax(logits.float() / of_rows, dim=-1)
    # saved first: activation checkpointing recomputes up to this point
    chosen = logprobs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    detached = logprobs.detach()
    return chosen, -torch.einsum("nv,nv->n", detached.exp(), detached)


def micro_batches(lengths: Tensor, token_budget: int, ranks: int) -> list[list[Tensor]]:
    """Split rows into micro-batches for each rank. Returns row indices by rank and micro-batch.

    All ranks get the same number of micro-batches. The last micro-batch of a rank may be empty.
    Rows are distributed by length, longest first. A micro-batch has at most `token_budget` tokens
    including padding, or a single row.
    """
    order = lengths.argsort(descending=True, stable=True)
    shares: list[list[Tensor]] = [[] for _ in range(ranks)]
    # rows go to the ranks in turn, so that each rank has rows of all lengths; rows of similar
    # length share a micro-batch and need little padding
    for rank, share in enumerate(shares):
        left = order[rank::ranks]
        while len(left):
            # the first row is the longest, so it determines the padded width; a row beyond the
            # budget goes alone
            take = max(1, token_budget // int(lengths[left[0]]))
            share.append(left[:take])
            left = left[take:]
    count = max(len(share) for share in shares)
    # collective operations wait for every rank, so all need the same number of passes
    return [share + [order[:0]] * (count - len(share)) for share in shares]
