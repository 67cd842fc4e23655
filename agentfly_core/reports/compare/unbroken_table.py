"""Tables that stay readable on a narrow terminal: lines wrap, nothing is cut."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

WIDEST = 10_000


@dataclass(frozen=True, slots=True)
class Unbroken:
    """A table in its own width: on a narrow terminal its lines continue in the next line, which can
    be read, unlike headings and numbers that are cut.
    """

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from console.render(self.table, options.update(width=WIDEST))
