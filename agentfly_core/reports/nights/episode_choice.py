"""The episodes of a night's report: largest changes, and the challenger's best and worst."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from agentfly_core.records.messages import read_text, said_text
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.reports.show.markdown import fenced, marked, plain
from agentfly_core.runs.episodes import Piece

PairKind = Literal["better", "worse", "best", "worst"]
KINDS: dict[PairKind, str] = {
    "better": "Changed for the better",
    "worse": "Changed for the worse",
    "best": "Best",
    "worst": "Worst",
}
SHOWN, CHANGED = 10, 3


@dataclass(frozen=True, slots=True)
class RatedEpisode:
    """An episode that has a reward: `RatedEpisode(trajectory, scored, 0.5)`."""

    trajectory: Trajectory
    scored: Scored
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


def pairs(
    champion: Iterable[tuple[Trajectory, Scored]], challenger: Iterable[tuple[Trajectory, Scored]]
) -> list[PlayedPair]:
    """Pair the episodes by problem and chain; an episode without a reward on one side is skipped.

    Of an episode with several speakers the answering speaker counts.
    """
    earlier, later = _by_place(champion), _by_place(challenger)
    return [
        PlayedPair(earlier[place], later[place]) for place in sorted(earlier.keys() & later.keys())
    ]


def choose(candidates: Sequence[PlayedPair]) -> list[tuple[PairKind, PlayedPair]]:
    """Choose ten different episodes: up to three gains, up to three losses, the largest first, and
    of the rest the challenger's best (the shortest first) and worst.
    """
    gains = sorted((p for p in candidates if p.change > 0), key=lambda p: -p.change)
    losses = sorted((p for p in candidates if p.change < 0), key=lambda p: p.change)
    better, worse = gains[:CHANGED], losses[:CHANGED]
    changed = {id(pair) for pair in (*better, *worse)}
    others = [pair for pair in candidates if id(pair) not in changed]
    others.sort(key=lambda p: (-p.challenger.reward, p.challenger.trajectory.sampled_tokens))
    room = min(SHOWN - len(changed), len(others))
    best, worst = others[: room // 2], others[len(others) - (room - room // 2) :]
    return [
        *(("better", pair) for pair in better),
        *(("worse", pair) for pair in worse),
        *(("best", pair) for pair in best),
        *(("worst", pair) for pair in reversed(worst)),
    ]


def shown(kind: PairKind, pair: PlayedPair) -> str:
    """Return an episode's section: the change of its rewards, and both conversations."""
    champion, challenger = pair.champion, pair.challenger
    before, after = champion.scored.rewards, challenger.scored.rewards
    tokens = [each.trajectory.sampled_tokens for each in (champion, challenger)]
    changes = [f"reward {champion.reward:.4g} → {challenger.reward:.4g}"]
    changes += [
        f"{plain(name)} {before[name]:.4g} → {value:.4g}"
        for name, value in after.items()
        if name in before
    ]
    changes.append(f"{tokens[0]:,} → {tokens[1]:,} tokens")
    problem = challenger.trajectory.problem
    texts = [
        marked([Piece("read", problem.prompt)], 800),
        "the champion:",
        marked(conversation(champion.trajectory), 1200),
        "this night:",
        marked(conversation(challenger.trajectory), 1200),
    ]
    title = f"### {KINDS[kind]}: {plain(problem.id, 100)}"
    return "\n\n".join([title, "; ".join(changes), fenced("\n".join(texts))])


def conversation(trajectory: Trajectory) -> list[Piece]:
    """Return replies and observations as text, without the problem and special tokens."""
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
