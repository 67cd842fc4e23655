"""The sampled tokens of each trajectory side by side, whatever lies between them and however many rows they take."""

from __future__ import annotations

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
