"""Tables whose lines wrap on a narrow terminal instead of being cut."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

WIDEST = 10_000


@dataclass(frozen=True, slots=True)
class Unbroken:
    """A table in its full width; the terminal wraps its lines."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.table, options.update(width=WIDEST))
