"""The same problems as two policies played them, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentfly_core.reports.show.choice import SortOrder, StoredEpisode, by_episode
from agentfly_core.reports.show.printed import facts, heading, legend
from agentfly_core.runs.episodes import Episodes, Pair
from agentfly_core.system.formats.text import counted

NARROW = 120
"""Terminals with fewer columns show the second episode below the first."""


@dataclass(frozen=True, slots=True)
class Twice:
    """An episode and the episode of the same problem and number that it is compared with."""

    shown: StoredEpisode
    against: StoredEpisode

    @property
    def change(self) -> float | None:
        """The reward of `shown` minus the reward of `against`; None if one is missing."""
        here, there = self.shown.reward, self.against.reward
        return None if here is None or there is None else here - there

    @property
    def conversations(self) -> list[tuple[Pair, Pair]]:
        """The conversations of each speaker of both; without empty ones, if any has text."""
        against = {pair[0].agent: pair for pair in self.against.conversations}
        both = [
            (pair, against[pair[0].agent])
            for pair in self.shown.conversations
            if pair[0].agent in against
        ]
        return [two for two in both if any(t.turns or t.error for t, _ in two)] or both


def played_twice(shown: Sequence[StoredEpisode], against: Episodes, of: str) -> list[Twice]:
    """Match episodes by problem and number; raises ValueError if nothing matches."""
    there = {episode.place: episode for episode in by_episode(against.pairs)}
    matched = [Twice(one, there[one.place]) for one in shown if one.place in there]
    if shown and not matched:
        raise ValueError(
            f"{of} and {against.title} share no problem: each training step plays other problems. "
            "Compare evaluations: --evaluation validation, or test."
        )
    return matched


def most_changed(played: Sequence[Twice], order: SortOrder, count: int) -> list[Twice]:
    """The `count` episodes with the largest fall or rise of the reward, unscored ones last."""
    sign = 1.0 if order == "worst" else -1.0
    ranked = sorted(played, key=lambda twice: (twice.change is None, sign * (twice.change or 0.0)))
    return ranked[:count]


def show_both(
    shown: Episodes,
    against: Episodes,
    episodes: Sequence[Twice],
    matching: int,
    chosen: Sequence[Twice],
) -> RenderableType:
    """The chosen episodes below a summary of all `episodes` that both have."""
    changes = [twice.change or 0.0 for twice in episodes]
    fell, rose = sum(change < 0 for change in changes), sum(change > 0 for change in changes)
    both = counted(len(episodes), "episode")
    return Group(
        heading(against, len(against.pairs)),
        heading(shown, matching),
        Text(f"{both} of the same problems; the reward fell in {fell}, rose in {rose}", "bold"),
        legend(),
        *(_Columns(shown, against, twice) for twice in chosen),
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Two episodes in columns, or below each other on a narrow terminal."""

    shown: Episodes
    against: Episodes
    twice: Twice

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        change = self.twice.change
        label = "no reward" if change is None else f"reward {change:+g}" if change else "equal"
        yield Rule(Text(f"{self.twice.shown.place[0]}, {label}"), align="left")
        for shown, against in self.twice.conversations:
            before, after = _whole(self.against, against), _whole(self.shown, shown)
            if options.max_width < NARROW:
                yield Group(before, "", after)
                continue
            columns = Table.grid(padding=(0, 1), expand=True)
            columns.add_column(ratio=1)
            columns.add_column(ratio=1)
            columns.add_row(before, after)
            yield columns


def _whole(stored: Episodes, pair: Pair) -> RenderableType:
    return Group(Text(stored.title, "bold"), facts(stored, pair), *stored.pieces(pair[0]))
