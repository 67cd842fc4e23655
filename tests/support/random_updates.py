"""Random updates of every shape: groups of one or many, one to three turns, new and resumed
contexts, replies in pieces.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rl.batch import RolloutBatch, pack
from agentfly_core.rl.interface import Outputs
from agentfly_core.rl.outcomes import Outcomes
from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from tests.support.generated_trajectories import earned
from tests.support.reference import Story, Token

WEIGHTS = {"exact": 1.0, "brief": 0.3}


@dataclass(frozen=True)
class Ragged:
    """An update, and the same as stories; `batch` has the signals that a learner adds."""

    trajectories: Sequence[Trajectory]
    outcomes: Outcomes
    batch: RolloutBatch
    stories: Sequence[Story]


def ragged(seed: int, order: Sequence[int] = range(8)) -> Ragged:
    """Eight trajectories of three problems, in this order."""
    dice = random.Random(seed)
    drawn = [_trajectory(dice, number) for number in range(8)]
    everything = [
        (t, [dice.choice((0.0, 0.25)) for _ in t.turns] * dice.randint(0, 1), _parts(dice))
        for t in drawn
    ]
    greedy = {"g0": 0.5, "g1": 0.0}
    chosen = [everything[i] for i in order]
    rewards = [parts["exact"] + 0.3 * parts["brief"] for _, _, parts in chosen]
    trajectories = [t for t, _, _ in chosen]
    batch = _signals(pack(trajectories), seed)
    outcomes = earned(
        trajectories,
        rewards,
        batch,
        [b for _, b, _ in chosen],
        [p for *_, p in chosen],
        WEIGHTS,
        greedy,
    )
    values = by_trajectory(batch.old_values, batch, len(chosen))
    stories = [
        Story(
            t.group,
            reward,
            by_turn,
            [k for k, turn in enumerate(t.turns) for span in turn.sampled for _ in span.tokens],
            [turn.state for turn in t.turns],
            parts,
            greedy.get(t.group),
            mine,
        )
        for (t, by_turn, parts), reward, mine in zip(chosen, rewards, values, strict=True)
    ]
    return Ragged(trajectories, outcomes, batch, stories)


def in_time(batch: RolloutBatch) -> list[list[int]]:
    """Row and column of each sampled token, ordered by turn."""
    return sorted(batch.sampled.nonzero().tolist(), key=lambda at: int(batch.turn[*at]))


def by_trajectory(tensor: Tensor, batch: RolloutBatch, count: int) -> list[list[float]]:
    """Values at the sampled tokens of each trajectory, ordered by turn."""
    values: list[list[float]] = [[] for _ in range(count)]
    for row, t in in_time(batch):
        values[int(batch.trajectory[row])].append(float(tensor[row, t]))
    return values


def now(batch: RolloutBatch, seed: int) -> Outputs:
    """Outputs of a policy after some updates: log-probabilities, entropies and values with
    gradients.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    made = [
        _near(base, batch, generator).requires_grad_()
        for base in (batch.old_logprobs, batch.old_values)
    ]
    return Outputs(made[0], torch.zeros_like(made[0]), made[1])


def tokens(outputs: Outputs, batch: RolloutBatch) -> Iterator[tuple[int, int, Token]]:
    """Each sampled token with its row and column, ordered by turn."""
    logprobs = outputs.logprobs.detach()
    signals = (logprobs, batch.old_logprobs, batch.rollout_logprobs, batch.reference_logprobs)
    for row, t in in_time(batch):
        moved = (logprobs - batch.old_logprobs)[row][batch.sampled[row]].double().mean()
        yield (
            row,
            t,
            Token(
                *(float(s[row, t]) for s in signals), float(batch.advantages[row, t]), float(moved)
            ),
        )


def _trajectory(dice: random.Random, number: int) -> Trajectory:
    def reply() -> dict[int, float]:
        return {
            token: -dice.uniform(0.05, 3.0) for token in dice.sample(range(50), dice.randint(1, 4))
        }

    contexts: list[int] = []

    def one(k: int) -> object:
        given = [dice.randrange(50) for _ in range(dice.randint(1, 5))]
        made = turn(
            given,
            *(reply() for _ in range(dice.randint(1, 2))),
            context=_context(contexts, dice.random() if k else 1.0),
        )
        return replace(made, state=dice.choice("abc"))

    group = f"g{min(number // 3, 2)}" if number < 7 else "g3"
    return played(*(one(k) for k in range(dice.randint(1, 3))), name=f"t{number}", group=group)


def _context(before: list[int], drawn: float) -> int:
    """A new context, the first one again, or the one before it."""
    context = max(before) + 1 if drawn < 0.3 else before[0] if drawn < 0.6 else (before or [0])[-1]
    before.append(context)
    return context


def _parts(dice: random.Random) -> dict[str, float]:
    return {"exact": dice.choice((0.0, 1.0)), "brief": dice.choice((0.0, 0.5, 1.0))}


def _signals(batch: RolloutBatch, seed: int) -> RolloutBatch:
    generator = torch.Generator().manual_seed(seed)
    old = _near(batch.rollout_logprobs, batch, generator)
    reference = _near(batch.rollout_logprobs, batch, generator)
    values = _near(torch.zeros_like(old), batch, generator)
    return replace(batch, old_logprobs=old, reference_logprobs=reference, old_values=values)


def _near(base: Tensor, batch: RolloutBatch, generator: torch.Generator) -> Tensor:
    return (base + 0.4 * torch.randn(base.shape, generator=generator)).detach() * batch.sampled
