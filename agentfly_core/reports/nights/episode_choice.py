"""Which episodes of a night are worth a look: what changed between champion and challenger, and the
challenger's best and worst.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from agentfly_core.records.messages import read_text, said_text
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.runs.episodes import Piece

PairKind = Literal["better", "worse", "best", "worst"]
SHOWN, CHANGED = 10, 3


@dataclass(frozen=True, slots=True)
class RatedEpisode:
    """An episode that has a reward: `RatedEpisode(trajectory, scored, 0.5)`."""

    trajectory: Trajectory
    scored: Scored
    reward: float


@dataclass(frozen=True, slots=True)
class PlayedPair:
    """The same problem, with the same seed, as champion and challenger played it."""

    champion: RatedEpisode
    challenger: RatedEpisode

    @property
    def change(self) -> float:
        """By how much the challenger's reward is higher."""
        return self.challenger.reward - self.champion.reward


def pairs(
    champion: Iterable[tuple[Trajectory, Scored]], challenger: Iterable[tuple[Trajectory, Scored]]
) -> list[PlayedPair]:
    """The episodes of both, problem by problem and chain by chain; those that lack a reward on one
    side are left out.
    """
    earlier, later = _by_place(champion), _by_place(challenger)
    return [
        PlayedPair(earlier[place], later[place]) for place in sorted(earlier.keys() & later.keys())
    ]


def choose(candidates: Sequence[PlayedPair]) -> list[tuple[PairKind, PlayedPair]]:
    """Ten of them, no episode twice: up to three that changed most for the better, as many for the
    worse, and of all others the challenger's best (of equal rewards the shortest) and worst (the
    longest).
    """
    better = sorted(
        (p for p in candidates if p.change > 0), key=attrgetter("change"), reverse=True
    )[:CHANGED]
    worse = sorted((p for p in candidates if p.change < 0), key=attrgetter("change"))[:CHANGED]
    changed = {id(pair) for pair in (*better, *worse)}
    others = [pair for pair in candidates if id(pair) not in changed]
    others.sort(key=lambda p: (-p.challenger.reward, p.challenger.trajectory.sampled_tokens))
    room = min(SHOWN - len(changed), len(others))
    best, worst = others[: room // 2], others[len(others) - (room - room // 2) :]
    chosen: list[tuple[PairKind, PlayedPair]] = [("better", pair) for pair in better]
    chosen += [("worse", pair) for pair in worse]
    chosen += [("best", pair) for pair in best]
    return [*chosen, *(("worst", pair) for pair in reversed(worst))]


def conversation(trajectory: Trajectory) -> list[Piece]:
    """What the model said and was answered, without the problem and without special tokens."""
    pieces: list[Piece] = []
    for number, turn in enumerate(trajectory.turns):
        if number:
            pieces += [Piece("read", read_text(item)) for item in turn.read]
        pieces.append(Piece("sampled", said_text(turn)))
    return pieces + [Piece("after", read_text(item)) for item in trajectory.closing]


def _by_place(episodes: Iterable[tuple[Trajectory, Scored]]) -> dict[tuple[str, int], RatedEpisode]:
    played = [*episodes]
    answered = {answering(one).id for one in by_episode([trajectory for trajectory, _ in played])}
    return {
        (trajectory.problem.id, trajectory.chain): RatedEpisode(trajectory, scored, scored.reward)
        for trajectory, scored in played
        if trajectory.id in answered and not isinstance(scored.reward, Unscored)
    }
