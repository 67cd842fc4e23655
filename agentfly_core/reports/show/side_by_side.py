"""The same problems as two policies played them, beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentfly_core.records.speakers import episode_numbers
from agentfly_core.reports.show.choice import Filter, SortOrder, reward_of_episode
from agentfly_core.reports.show.printed import counts, facts, heading, legend
from agentfly_core.runs.episodes import Episodes, Pair, reward_of
from agentfly_core.system.formats.text import counted

NARROW = 120
"""Terminals of fewer columns show two episodes one below the other."""


@dataclass(frozen=True, slots=True)
class Twice:
    """An episode and the one of the same problem and chain that it is compared with."""

    shown: Pair
    against: Pair

    @property
    def change(self) -> float | None:
        """By how much the reward of the shown one is higher; None where one has no reward."""
        here, there = reward_of(self.shown[1]), reward_of(self.against[1])
        return None if here is None or there is None else here - there

    @property
    def has_text(self) -> bool:
        """Whether either has a reply or an error; a speaker may have neither."""
        return any(played.turns or played.error for played, _ in (self.shown, self.against))


def played_twice(shown: Sequence[Pair], against: Episodes, of: str) -> list[Twice]:
    """The episodes that both have; raises ValueError where they have no problem in common."""
    there = {_place(pair): pair for pair in against.pairs}
    matched = [Twice(pair, there[_place(pair)]) for pair in shown if _place(pair) in there]
    if shown and not matched:
        raise ValueError(
            f"{of} and {against.title} have no problem in common: steps of training play other "
            "problems each. Held-out problems are the same for every policy that was evaluated: "
            "--evaluation validation, or test."
        )
    return matched


def most_changed(played: Sequence[Twice], order: SortOrder, count: int) -> list[Twice]:
    """The conversations of `count` episodes whose reward fell most, or rose most; episodes without
    a change come last.
    """
    sign = 1.0 if order == "worst" else -1.0
    episodes = defaultdict(list)
    for number, twice in zip(episode_numbers(t.shown[0] for t in played), played, strict=True):
        episodes[number].append(twice)

    def rank(episode: Sequence[Twice]) -> tuple[bool, float]:
        here = reward_of_episode([twice.shown for twice in episode])
        there = reward_of_episode([twice.against for twice in episode])
        unknown = here is None or there is None
        return unknown, 0.0 if here is None or there is None else sign * (here - there)

    return [twice for episode in sorted(episodes.values(), key=rank)[:count] for twice in episode]


def show_both(
    shown: Episodes,
    against: Episodes,
    episodes: Sequence[Twice],
    matching: int,
    filters: Sequence[Filter],
    chosen: Sequence[Twice],
) -> RenderableType:
    """The chosen episodes of both below a line about each; `found` are all that both have."""
    changes = [(twice.shown[0].episode, change) for twice in episodes if (change := twice.change)]
    fell = {episode for episode, change in changes if change < 0}
    rose = {episode for episode, change in changes if change > 0}
    both = counted(len({twice.shown[0].episode for twice in episodes}), "episode")
    text = f"{both} of the same problems; the reward fell in {len(fell)}, rose in {len(rose)}"
    return Group(
        heading(against),
        heading(shown),
        *counts(shown, matching, filters),
        Text(text, "bold"),
        legend(),
        *(_Columns(shown, against, twice) for twice in _with_text(chosen)),
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """Two episodes in columns, or one below the other where there is no room for columns."""

    shown: Episodes
    against: Episodes
    twice: Twice

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        change = self.twice.change
        label = (
            "no change known" if change is None else f"reward {change:+g}" if change else "equal"
        )
        problem = self.twice.shown[0].problem.id
        yield Rule(Text(f"{problem}, {label}"), align="left")
        before = _whole(self.against, self.twice.against)
        after = _whole(self.shown, self.twice.shown)
        if options.max_width < NARROW:
            yield Group(before, "", after)
            return
        columns = Table.grid(padding=(0, 1), expand=True)
        columns.add_column(ratio=1)
        columns.add_column(ratio=1)
        columns.add_row(before, after)
        yield columns


def _with_text(chosen: Sequence[Twice]) -> list[Twice]:
    """The conversations with a reply or an error, and those of episodes without either."""
    loud = {twice.shown[0].episode for twice in chosen if twice.has_text}
    return [one for one in chosen if one.has_text or one.shown[0].episode not in loud]


def _whole(stored: Episodes, pair: Pair) -> RenderableType:
    return Group(Text(stored.title, "bold"), facts(stored, pair), *stored.pieces(pair[0]))


def _place(pair: Pair) -> tuple[str, int, str]:
    return pair[0].problem.id, pair[0].chain, pair[0].agent
