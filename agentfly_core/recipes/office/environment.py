"""The environment with an office's database. Each lookup reads one table."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from agentfly_core import Environment, Problem, ToolError

TABLES: Mapping[str, tuple[str, ...]] = {
    "orders": ("number", "person", "amount"),
    "people": ("number", "name", "company"),
    "companies": ("number", "name", "city"),
    "cities": ("number", "name"),
}
MOST_ROWS = 10
_OUTSIDE = (sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA)


class Office(Environment):
    """A SQLite database with the tables TABLES, made by a script in the facts of a problem:

        {"database": "CREATE TABLE orders (number INTEGER, person INTEGER, amount INTEGER); "
                     "INSERT INTO orders VALUES (482, 57, 36); ..."}

    The database is read-only and runs in this process. For SQL that a model writes, use the
    environment `Database`, which reads the same fact `database`.
    """

    def __init__(self) -> None:
        self._opened = sqlite3.connect(":memory:", check_same_thread=False)

    async def reset(self, problem: Problem) -> None:
        """Make a new database, and run the SQL script in the fact `database` of the problem.

        Raises KeyError if the problem lacks this fact, and sqlite3.Error for a wrong script.
        """
        script: str = problem.facts["database"]
        await self.close()
        self._opened = sqlite3.connect(":memory:", check_same_thread=False)
        # scripts come from data files, and must not access other files
        self._opened.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action in _OUTSIDE else sqlite3.SQLITE_OK
        )
        self._opened.executescript(script)

    def select(self, what: str, table: str, column: str, value: str | int) -> list[tuple[Any, ...]]:
        """Find the rows of `table` in which `column` has this value, and return the columns `what`.

        `what` contains SQL expressions, such as "number, name". At most MOST_ROWS rows are
        returned. Raises ToolError if the table lacks the column.
        """
        if column not in (columns := TABLES[table]):
            raise ToolError(f"{table} has no column {column!r}. It has: {', '.join(columns)}.")
        where = f"{column} = ? ORDER BY rowid LIMIT {MOST_ROWS}"
        statement = f"SELECT {what} FROM {table} WHERE {where}"
        with closing(self._opened.execute(statement, (value,))) as cursor:
            return cursor.fetchall()

    async def snapshot(self) -> bytes:
        """Return empty bytes, because the database is read-only."""
        return b""

    async def restore(self, snapshot: bytes) -> None:
        """Do nothing, because the database is read-only."""

    async def close(self) -> None:
        self._opened.close()
