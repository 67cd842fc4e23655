"""The episodes of a night's report: the largest changes of the reward, played by both policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentfly_core.records.messages import read_text, said_text
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.reports.show.markdown import fenced, marked, plain
from agentfly_core.runs.episodes import Piece

CHANGED = 3
"""How many gains, and how many losses, a report shows."""


@dataclass(frozen=True, slots=True)
class RatedEpisode:
    """An episode's answering speaker and its reward: `RatedEpisode(trajectory, 0.5)`."""

    trajectory: Trajectory
    reward: float


@dataclass(frozen=True, slots=True)
class PlayedPair:
    """An episode of the same problem and seed by both policies: `PlayedPair(old, new)`."""

    champion: RatedEpisode
    challenger: RatedEpisode

    @property
    def change(self) -> float:
        """The challenger's reward minus the champion's."""
        return self.challenger.reward - self.champion.reward


def changed(
    champion: Iterable[tuple[Trajectory, Scored]], challenger: Iterable[tuple[Trajectory, Scored]]
) -> list[PlayedPair]:
    """Choose the episodes with the largest gains, then the largest losses.

    An episode without a reward on one side is skipped.
    """
    old, new = _by_place(champion), _by_place(challenger)
    pairs = [PlayedPair(old[place], new[place]) for place in sorted(old.keys() & new.keys())]
    ranked = sorted(pairs, key=lambda pair: -pair.change)
    gains = [pair for pair in ranked if pair.change > 0][:CHANGED]
    losses = [pair for pair in reversed(ranked) if pair.change < 0][:CHANGED]
    return [*gains, *losses]


def shown(pair: PlayedPair) -> str:
    """Return an episode's section: the change of its reward, and both conversations."""
    champion, challenger = pair.champion, pair.challenger
    problem = challenger.trajectory.problem
    texts = [
        marked([Piece("read", problem.prompt)], 800),
        "the champion:",
        marked(conversation(champion.trajectory), 1200),
        "this night:",
        marked(conversation(challenger.trajectory), 1200),
    ]
    title = f"### {plain(problem.id, 100)}: reward {champion.reward:.4g} → {challenger.reward:.4g}"
    return "\n\n".join([title, fenced("\n".join(texts))])


def conversation(trajectory: Trajectory) -> list[Piece]:
    """Return replies and observations as text, without the problem and special tokens."""
    pieces: list[Piece] = []
    for number, turn in enumerate(trajectory.turns):
        if number:
            pieces += [Piece("read", read_text(item)) for item in turn.read]
        pieces.append(Piece("sampled", said_text(turn)))
    return pieces + [Piece("after", read_text(item)) for item in trajectory.closing]


def _by_place(
    episodes: Iterable[tuple[Trajectory, Scored]],
) -> Mapping[tuple[str, int], RatedEpisode]:
    played = [*episodes]
    answered = {answering(one).id for one in by_episode([trajectory for trajectory, _ in played])}
    return {
        (trajectory.problem.id, trajectory.chain): RatedEpisode(trajectory, scored.reward)
        for trajectory, scored in played
        if trajectory.id in answered and not isinstance(scored.reward, Unscored)
    }
