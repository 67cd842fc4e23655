"""A SQLite database of an episode's own, in memory: what a problem says is in it, and what the model did to it."""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from agentfly_core.environment import Environment
from agentfly_core.record import Problem
from agentfly_core.tool import ToolError

SECONDS = 5.0
PAGES = 4096  # of 4 KiB each
LONGEST = 1_000_000  # bytes of one value
INSTRUCTIONS_BETWEEN_LOOKS = 10_000
OUTSIDE = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA)


@dataclass(frozen=True, slots=True)
class Table:
    """What a query found: `Table(("name", "price"), (("pens", 3), ("ink", 2)), more=0)`; `more` rows were left out."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    more: int


class Database(Environment):
    """A database that a problem's fact `database`, a script of SQL, sets up:

        {"database": "CREATE TABLE products (name TEXT, price INT); INSERT INTO products VALUES ('pens', 3)"}

    Nothing outside can be reached from it: no other file, no pragma, no extension. It holds 16 MiB at most.
    """

    async def reset(self, problem: Problem) -> None:
        """Make it anew; raises KeyError without the fact, sqlite3.Error for a script that is none."""
        await self.close()
        self._opened = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        self._opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)
        with self._trusted() as opened:
            opened.executescript(problem.facts["database"])

    async def close(self) -> None:
        """Forget it."""
        if hasattr(self, "_opened"):
            self._opened.close()

    def run(self, statement: str, most: int) -> Table:
        """Run one statement, for 5 seconds at most, and read at most so many rows.

        Raises ToolError with what is wrong.
        """
        over = time.monotonic() + SECONDS
        self._opened.set_progress_handler(lambda: time.monotonic() > over, INSTRUCTIONS_BETWEEN_LOOKS)
        try:
            cursor = self._opened.execute(statement)
            rows = cursor.fetchmany(most)
            more = sum(1 for _ in cursor)
        except (sqlite3.Error, sqlite3.Warning) as error:
            late = f"It took longer than {SECONDS:g} s and was stopped." if time.monotonic() > over else ""
            raise ToolError(late or f"{type(error).__name__}: {error}") from None
        return Table(tuple(column[0] for column in cursor.description or ()), rows, more)

    def snapshot(self) -> bytes:
        """All that is in it, for `restore`."""
        with self._trusted() as opened:
            return opened.serialize()

    def restore(self, snapshot: bytes) -> None:
        """Go back to what was in it at a snapshot, of this or of another database."""
        with self._trusted() as opened:
            opened.deserialize(snapshot)

    def state_key(self) -> str:
        """What is in it, to the byte: a row that was written and deleted leaves a trace."""
        return hashlib.sha256(self.snapshot()).hexdigest()

    @contextmanager
    def _trusted(self) -> Iterator[sqlite3.Connection]:
        self._opened.set_authorizer(None)
        yield self._opened
        self._opened.execute(f"PRAGMA max_page_count = {PAGES}")
        self._opened.set_authorizer(_within)


def _within(action: int, *_: str | None) -> int:
    return sqlite3.SQLITE_DENY if action in OUTSIDE else sqlite3.SQLITE_OK
