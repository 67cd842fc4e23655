"""SQL on a database of an episode's own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agentfly_core.environments import database as databases
from agentfly_core.environments.database import Database
from agentfly_core.record import Observation, Problem, ToolCall
from agentfly_core.tools.sql import sql

SCRIPT = """
CREATE TABLE products (name TEXT, price INT);
INSERT INTO products VALUES ('pens', 3), ('ink', 2), ('paper', NULL);
"""
PROBLEM = Problem("cheapest", "What is cheapest?", {"database": SCRIPT, "answer": "ink"})
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    made = Database()
    await made.reset(PROBLEM)
    yield made
    await made.close()


async def ask(statement: str, database: Database) -> Observation:
    return await sql.answer(ToolCall("sql", {"statement": statement}), {Database: database})


async def test_rows_are_read_under_their_columns(database: Database) -> None:
    found = await ask("SELECT * FROM products ORDER BY name", database)
    assert found == Observation("sql", "name | price\nink | 2\npaper | NULL\npens | 3")


async def test_a_change_is_seen_by_the_next_statement_and_by_no_other_episode(database: Database) -> None:
    assert (await ask("DELETE FROM products WHERE name = 'ink'", database)).content == "Done."
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n2"
    await database.reset(PROBLEM)
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n3"


async def test_a_mistake_is_told_to_the_model(database: Database) -> None:
    assert await ask("SELECT colour FROM products", database) == Observation(
        "sql", "OperationalError: no such column: colour", error=True
    )
    two = await ask("SELECT 1; SELECT 2", database)
    assert (two.error, "one statement at a time" in two.content) == (True, True)


async def test_many_rows_are_cut_and_counted(database: Database) -> None:
    rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) SELECT i FROM n"
    lines = (await ask(rows, database)).content.splitlines()
    assert (lines[0], lines[1], lines[50], lines[51]) == ("i", "1", "50", "[... 10 more rows ...]")


async def test_a_query_without_end_is_stopped(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "SECONDS", 0.05)
    assert await ask(ENDLESS, database) == Observation("sql", "It took longer than 0.05 s and was stopped.", error=True)


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '/tmp/elsewhere.db' AS elsewhere",
        "PRAGMA max_page_count = 1000000000",
        "VACUUM INTO '/tmp/elsewhere.db'",
        "SELECT load_extension('/tmp/evil.so')",
        "SELECT writefile('/tmp/elsewhere', 'x')",
    ],
)
async def test_nothing_outside_can_be_reached(database: Database, statement: str) -> None:
    assert (await ask(statement, database)).error


@pytest.mark.parametrize("restored", [False, True])
async def test_a_database_that_grows_without_end_is_full(database: Database, restored: bool) -> None:
    if restored:
        database.restore(database.snapshot())
    await ask("CREATE TABLE big (x BLOB)", database)
    fill = "INSERT INTO big SELECT randomblob(900000) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
    fill += "FROM n WHERE i < 100) SELECT i FROM n)"
    found = await ask(fill, database)
    assert (found.error, found.content) == (True, "OperationalError: database or disk is full")


async def test_a_snapshot_can_be_gone_back_to(database: Database) -> None:
    before = database.snapshot()
    await ask("DROP TABLE products", database)
    database.restore(before)
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n3"
    assert (await ask("PRAGMA user_version = 3", database)).error
