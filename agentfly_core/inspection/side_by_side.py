"""The same problems as two policies played them, beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from agentfly_core.formats.text import counted
from agentfly_core.inspection.choice import Filter, Order
from agentfly_core.inspection.printed import counts, facts, heading, legend
from agentfly_core.runs.episodes import Episodes, Pair, reward_of

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


def played_twice(shown: Sequence[Pair], against: Episodes, of: str) -> list[Twice]:
    """The episodes that both have; raises ValueError where they have no problem in common."""
    there = {_place(pair): pair for pair in against.pairs}
    found = [Twice(pair, there[_place(pair)]) for pair in shown if _place(pair) in there]
    if shown and not found:
        raise ValueError(
            f"{of} and {against.title} have no problem in common: steps of training play other "
            "problems each. Held-out problems are the same for every policy that was evaluated: "
            "--evaluation validation, or test."
        )
    return found


def most_changed(found: Sequence[Twice], order: Order, count: int) -> list[Twice]:
    """`count` of those whose reward fell most, or rose most; those without a change come last."""
    sign = 1.0 if order == "worst" else -1.0
    return sorted(found, key=lambda twice: (twice.change is None, sign * (twice.change or 0.0)))[
        :count
    ]


def show_both(
    shown: Episodes,
    against: Episodes,
    found: Sequence[Twice],
    matching: int,
    filters: Sequence[Filter],
    chosen: Sequence[Twice],
) -> RenderableType:
    """The chosen episodes of both below a line about each; `found` are all that both have."""
    changes = [(twice.shown[0].episode, change) for twice in found if (change := twice.change)]
    fell = {episode for episode, change in changes if change < 0}
    rose = {episode for episode, change in changes if change > 0}
    both = counted(len({twice.shown[0].episode for twice in found}), "episode")
    text = f"{both} of the same problems; the reward fell in {len(fell)}, rose in {len(rose)}"
    return Group(
        heading(against),
        heading(shown),
        *counts(len(shown.pairs), matching, filters),
        Text(text, "bold"),
        legend(),
        *(_Columns(shown, against, twice) for twice in chosen),
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
        told = "no change known" if change is None else f"reward {change:+g}" if change else "equal"
        problem = self.twice.shown[0].problem.id
        yield Rule(Text(f"{problem}, {told}"), align="left")
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


def _whole(stored: Episodes, pair: Pair) -> RenderableType:
    return Group(Text(stored.title, "bold"), facts(stored, pair), *stored.pieces(pair[0]))


def _place(pair: Pair) -> tuple[str, int, str]:
    return pair[0].problem.id, pair[0].chain, pair[0].agent
