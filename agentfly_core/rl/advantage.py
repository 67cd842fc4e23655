"""The sampled tokens of each trajectory side by side, whatever lies between them and however many rows they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentfly_core.rl.batch import RolloutBatch


@dataclass(frozen=True)
class Sequences:
    """Where the sampled tokens of a batch go in tensors [trajectories, longest]: one line a trajectory, no gaps.

    A trajectory of two rows with sampled tokens at (0, 3), (0, 4) and (1, 2) has the columns 0, 1, 2 of its line.
    """

    sampled: Tensor
    line: Tensor
    column: Tensor
    shape: tuple[int, int]

    @property
    def lengths(self) -> Tensor:
        """How many tokens were sampled in each trajectory, int64 [trajectories]."""
        return torch.bincount(self.line, minlength=self.shape[0])

    @property
    def present(self) -> Tensor:
        """Which places of [trajectories, longest] hold a token."""
        return torch.arange(self.shape[1]) < self.lengths.unsqueeze(1)

    def gather(self, tokens: Tensor) -> Tensor:
        """What stands at sampled tokens [rows, T], as [trajectories, longest]; 0 where there is none."""
        found = torch.zeros(self.shape, dtype=tokens.dtype)
        found[self.line, self.column] = tokens[self.sampled]
        return found

    def scatter(self, values: Tensor) -> Tensor:
        """The way back: from [trajectories, longest] to [rows, T], 0 where no token was sampled."""
        found = torch.zeros(self.sampled.shape, dtype=values.dtype)
        return found.masked_scatter(self.sampled, values[self.line, self.column])


def sequences(batch: RolloutBatch, trajectories: int) -> Sequences:
    """The layout of a batch whose rows stand in the order of their `trajectories` trajectories."""
    assert bool((batch.trajectory.diff() >= 0).all())
    line = batch.trajectory.unsqueeze(1).expand_as(batch.sampled)[batch.sampled]
    first = torch.searchsorted(line, line)
    longest = int(torch.bincount(line).max()) if len(line) else 0
    return Sequences(batch.sampled, line, torch.arange(len(line)) - first, (trajectories, longest))


def whitened(advantages: Tensor, batch: RolloutBatch) -> Tensor:
    """Mean 0 and variance 1 over all sampled tokens, float32 [rows, T]; all 0 where they are all equal."""
    found, nothing = advantages[batch.sampled].double(), torch.zeros(advantages.shape)
    if len(found) < 2 or bool((found == found[0]).all()):
        return nothing
    scaled = (found - found.mean()) / (found.std() + 1e-8)
    return nothing.masked_scatter(batch.sampled, scaled.float())


def spread(values: Tensor, batch: RolloutBatch) -> Tensor:
    """Give every sampled token [rows, T] the value of its trajectory, from `values` [trajectories]."""
    return (values[batch.trajectory].unsqueeze(1) * batch.sampled).float()


def within_groups(groups: Iterable[Sequence[int]], how: Callable[..., Tensor], *values: Tensor) -> Tensor:
    """`how(*values)` of each group's own part of the values [n], by index; 0 where the first of them are all equal.

    Somebody alone in a group is equal, too. Rewards 1, 0, 3, 3 in groups (0, 1), (2, 3) give `centred` 0.5, -0.5, 0, 0.
    """
    found = torch.zeros_like(values[0])
    for group in map(list, groups):
        mine = [value[group] for value in values]
        if bool((mine[0] != mine[0][:1]).any()):
            found[group] = how(*mine)
    return found


def centred(values: Tensor) -> Tensor:
    """Less their mean."""
    return values - values.mean()


def standardised(values: Tensor) -> Tensor:
    """Less their mean, over their unbiased standard deviation."""
    return centred(values) / (values.std() + 1e-6)
