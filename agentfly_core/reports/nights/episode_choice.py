"""The episodes of a night's report: the largest changes of the reward, played by both policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentfly_core.records.messages import read_text, said_text
from agentfly_core.records.speakers import answering, by_episode
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.reports.show.choice import StoredEpisode
from agentfly_core.reports.show.markdown import fenced, marked, plain
from agentfly_core.reports.show.side_by_side import Twice, most_changed
from agentfly_core.runs.episodes import Pair, Piece

CHANGED = 3
"""How many gains, and how many losses, a report shows."""


def changed(champion: Sequence[Pair], challenger: Sequence[Pair]) -> list[Twice]:
    """Choose the episodes with the largest gains, then the largest losses.

    An episode is its answering speaker's; one without a reward on one side is skipped.
    """
    old, new = _by_place(champion), _by_place(challenger)
    twice = [Twice(new[place], old[place]) for place in sorted(old.keys() & new.keys())]
    gains = [each for each in most_changed(twice, "best", CHANGED) if (each.change or 0) > 0]
    losses = [each for each in most_changed(twice, "worst", CHANGED) if (each.change or 0) < 0]
    return [*gains, *losses]


def shown(twice: Twice) -> str:
    """Return an episode's section: the change of its reward, and both conversations."""
    ((champion, _),), ((challenger, _),) = twice.against.conversations, twice.shown.conversations
    problem, before, after = challenger.problem, twice.against.reward, twice.shown.reward
    assert before is not None and after is not None, "its reward changed"
    texts = [
        marked([Piece("read", problem.prompt)], 800),
        "the champion:",
        marked(conversation(champion), 1200),
        "this night:",
        marked(conversation(challenger), 1200),
    ]
    title = f"### {plain(problem.id, 100)}: reward {before:.4g} → {after:.4g}"
    return "\n\n".join([title, fenced("\n".join(texts))])


def conversation(trajectory: Trajectory) -> list[Piece]:
    """Return replies and observations as text, without the problem and special tokens."""
    pieces: list[Piece] = []
    for number, turn in enumerate(trajectory.turns):
        if number:
            pieces += [Piece("read", read_text(item)) for item in turn.read]
        pieces.append(Piece("sampled", said_text(turn)))
    return pieces + [Piece("after", read_text(item)) for item in trajectory.closing]


def _by_place(pairs: Sequence[Pair]) -> Mapping[tuple[str, int], StoredEpisode]:
    answered = {answering(one).id for one in by_episode([trajectory for trajectory, _ in pairs])}
    episodes = [StoredEpisode((pair,)) for pair in pairs if pair[0].id in answered]
    return {episode.place: episode for episode in episodes}
