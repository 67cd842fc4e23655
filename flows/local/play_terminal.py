"""The terminal for watching episodes and chats with a policy."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from agentfly_core.runs.episodes import Piece
from agentfly_core.system.progress import Progress as StageProgress
from agentfly_core.system.progress import listening

YOU = "you>    "


@dataclass(frozen=True)
class PlayTerminal:
    """Where a person reads and types: `PlayTerminal(VisibleConsole())`."""

    console: Console

    def show(self, what: Piece | str) -> None:
        """Show a piece of an episode, or plain text."""
        if isinstance(what, str):
            self.console.print(what, soft_wrap=True)
        else:
            self.console.print(what)

    def typed(self) -> str:
        """A line of the person's input, shown if it comes from a file or pipe; empty at the end."""
        typing = sys.stdin.isatty()
        try:
            line = input(YOU if typing else "").strip()
        except EOFError:
            return ""
        if line and not typing:
            self.show(f"{YOU}{line}")
        return line

    @contextmanager
    def bar(self) -> Iterator[None]:
        """Show a progress bar within the block, on a terminal."""
        columns = TextColumn("{task.description}"), BarColumn(24), MofNCompleteColumn()
        hidden = not self.console.is_terminal
        with Progress(
            *columns, TimeElapsedColumn(), console=self.console, transient=True, disable=hidden
        ) as bar:
            task = bar.add_task("play", total=None)

            def show(report: StageProgress) -> None:
                bar.update(
                    task, description=report.stage, completed=report.done, total=report.total
                )

            with listening(show):
                yield
