"""Normalise values within groups or batches, and arrange the sampled tokens of each trajectory in
one row.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agentfly_core.records.speakers import differ
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.late import Tensor, torch


@dataclass(frozen=True)
class Sequences:
    """A layout of the sampled tokens of a batch, with one row for each trajectory.

    The shape is [trajectories, longest], where `longest` is the largest number of sampled tokens of
    a trajectory. The tokens of a row are in chronological order. In the batch, a trajectory may
    have several rows, and its tokens may be in another order.

    - `sampled`: the mask of sampled tokens in the rows of the batch, [rows, T]
    - `line`, `column`: for each sampled token, its row and its column in the layout
    - `turns`: the index of the turn of each token, [trajectories, longest], -1 for padding
    """

    sampled: Tensor
    line: Tensor
    column: Tensor
    turns: Tensor

    @property
    def lengths(self) -> Tensor:
        """The number of sampled tokens of each trajectory, int64 [trajectories]."""
        return torch.bincount(self.line, minlength=len(self.turns))

    def gather(self, tokens: Tensor) -> Tensor:
        """Arrange the values of tokens in one row for each trajectory, padded with 0.

        `tokens` has the rows of the batch, [rows, T]. The result is [trajectories, longest].
        """
        gathered = torch.zeros(self.turns.shape, dtype=tokens.dtype)
        gathered[self.line, self.column] = tokens[self.sampled]
        return gathered

    def scatter(self, values: Tensor) -> Tensor:
        """Rearrange values of tokens from [trajectories, longest] to [rows, T].

        `longest` is the largest number of sampled tokens of a trajectory. Tokens that were not
        sampled get 0.
        """
        empty = torch.zeros(self.sampled.shape, dtype=values.dtype)
        return empty.masked_scatter(self.sampled, values[self.line, self.column])


def sequences(batch: RolloutBatch, trajectories: int) -> Sequences:
    """Return the layout of the sampled tokens of a batch. Rows must be sorted by trajectory.

    `trajectories` is the number of trajectories.
    """
    assert bool((batch.trajectory.diff() >= 0).all())
    line = batch.trajectory.unsqueeze(1).expand_as(batch.sampled)[batch.sampled]
    turn = batch.turn[batch.sampled]
    # if a context was continued later, a later row of the batch may have earlier turns
    by_turn = turn.argsort(stable=True)
    in_time = by_turn[line[by_turn].argsort(stable=True)]
    column = torch.empty_like(line)
    # `line` is sorted, so searchsorted gives the index of the first token of each trajectory
    column[in_time] = torch.arange(len(line)) - torch.searchsorted(line, line)
    longest = int(column.max()) + 1 if len(column) else 0
    turns = torch.full((trajectories, longest), -1)
    turns[line, column] = turn
    return Sequences(batch.sampled, line, column, turns)


def first_of_turns(turns: Tensor) -> Tensor:
    """Return the mask of the first token of each turn, bool [trajectories, longest].

    `turns` has the turn index of each token, and -1 for padding (see `Sequences.turns`).
    """
    # -1 is not a turn, so the first column is always the first token of a turn
    before = torch.cat([torch.full((len(turns), 1), -1), turns[:, :-1]], dim=1)
    return (turns >= 0) & (turns != before)


def last_of_turns(turns: Tensor) -> Tensor:
    """Return the mask of the last token of each turn, bool [trajectories, longest].

    `turns` has the turn index of each token, and -1 for padding (see `Sequences.turns`).
    """
    after = torch.cat([turns[:, 1:], torch.full((len(turns), 1), -1)], dim=1)
    return (turns >= 0) & (turns != after)


def varies(values: Tensor) -> bool:
    """Whether `values` [n] differ by more than rounding errors.

    The result is False for an empty tensor and for nan.
    """
    return bool(len(values)) and differ(float(values.min()), float(values.max()))


def whitened(advantages: Tensor, batch: RolloutBatch) -> Tensor:
    """Normalise advantages to mean 0 and variance 1 over all sampled tokens.

    Returns float32 [rows, T]. If all advantages are equal, the result is 0.
    """
    # in float64, because a sum over all tokens of an update loses digits in float32
    of_tokens, nothing = advantages[batch.sampled].double(), torch.zeros(advantages.shape)
    if not varies(of_tokens):
        return nothing
    scaled = (of_tokens - of_tokens.mean()) / (of_tokens.std() + 1e-8)
    return nothing.masked_scatter(batch.sampled, scaled.float())


def whitened_by_task(
    tasks: Mapping[str, Sequence[int]], advantages: Tensor, batch: RolloutBatch
) -> Tensor:
    """Apply `whitened` to the sampled tokens of each task separately.

    `tasks` maps each task to the indices of its trajectories.
    """
    result = torch.zeros(advantages.shape)
    for members in tasks.values():
        own = torch.isin(batch.trajectory, torch.tensor(members)).unsqueeze(1) & batch.sampled
        result = torch.where(own, whitened(advantages, replace(batch, sampled=own)), result)
    return result


def spread(values: Tensor, batch: RolloutBatch) -> Tensor:
    """Expand values of trajectories [trajectories] to tokens [rows, T].

    Each sampled token gets the value of its trajectory. All other tokens get 0.
    """
    return (values[batch.trajectory].unsqueeze(1) * batch.sampled).float()


def within_groups(
    groups: Iterable[Sequence[int]], how: Callable[..., Tensor], *values: Tensor
) -> Tensor:
    """Apply the function `how` to each group, and return all results as one tensor [n].

    A group is a list of indices. Each tensor in `values` is [n], such as the rewards of n
    trajectories. For each group, `how` gets the group's entries of every tensor, and returns the
    group's results. If the group's entries of the first tensor are all equal, `how` is not called
    and the group's results are 0.

    Example with `how=centred`: the rewards 1, 0, 3, 3 in the groups (0, 1) and (2, 3) give 0.5,
    -0.5, 0, 0.

    To compare trajectories, use `Outcomes.compare`. `Outcomes.compare` counts each episode once,
    even if the episode has several trajectories.
    """
    results = torch.zeros_like(values[0])
    for group in map(list, groups):
        of_group = [value[group] for value in values]
        if varies(of_group[0]):
            results[group] = how(*of_group)
    return results


def centred(values: Tensor, over: Tensor | None = None) -> Tensor:
    """Subtract the mean of `over` from values. If `over` is None, subtract their own mean."""
    return values - (values if over is None else over).mean()


def standardised(values: Tensor, over: Tensor | None = None) -> Tensor:
    """Subtract the mean of `over` from values, and divide by the standard deviation of `over`.

    For example, `values` has a reward for each speaker, and `over` has one mean reward for each
    episode. If `over` is None, `values` are used instead. The standard deviation is unbiased.
    """
    over = values if over is None else over
    # as in GRPO of verl, the deviation is unbiased and 1e-6 is added; TRL adds 1e-4
    return centred(values, over) / (over.std() + 1e-6)
