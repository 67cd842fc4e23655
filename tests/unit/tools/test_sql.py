"""SQL on a database of an episode's own."""

from collections.abc import AsyncIterator

import pytest

from agentfly_core.authoring.tool import ToolError
from agentfly_core.environments import database as databases
from agentfly_core.environments import interpreter as interpreters
from agentfly_core.environments.database import Database
from agentfly_core.records.trajectory import Observation, Problem, ToolCall
from agentfly_core.sandbox.guest.protocol import Limits
from agentfly_core.tools.sql import sql
from tests.support.signals import called

SCRIPT = """
CREATE TABLE products (name TEXT, price INT);
INSERT INTO products VALUES ('pens', 3), ('ink', 2), ('paper', NULL);
"""
pytestmark = pytest.mark.usefixtures("sandbox")
PROBLEM = Problem("cheapest", "What is cheapest?", {"database": SCRIPT, "answer": "ink"})
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    made = Database()
    await called(made.reset, PROBLEM)
    yield made
    await called(made.close)


async def ask(statement: str, database: Database) -> Observation:
    return await sql.answer(ToolCall("sql", {"statement": statement}), {Database: database})


async def test_rows_have_column_names(database: Database) -> None:
    result = await ask("SELECT * FROM products ORDER BY name", database)
    assert result == Observation("sql", "name | price\nink | 2\npaper | NULL\npens | 3")


async def test_a_change_is_visible_in_its_own_episode_only(
    database: Database,
) -> None:
    assert (await ask("DELETE FROM products WHERE name = 'ink'", database)).content == "Done."
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n2"
    await called(database.reset, PROBLEM)
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n3"


async def test_an_sql_error_is_reported_to_the_model(database: Database) -> None:
    assert await ask("SELECT colour FROM products", database) == Observation(
        "sql", "OperationalError: no such column: colour", error=True
    )
    two = await ask("SELECT 1; SELECT 2", database)
    assert (two.error, "one statement at a time" in two.content) == (True, True)


async def test_many_rows_are_cut_and_counted(database: Database) -> None:
    rows = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60) "
        "SELECT i FROM n"
    )
    lines = (await ask(rows, database)).content.splitlines()
    assert (lines[0], lines[1], lines[50], lines[51]) == ("i", "1", "50", "[... 10 more rows ...]")


async def test_an_endless_query_is_stopped(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(databases, "SECONDS", 0.05)
    assert await ask(ENDLESS, database) == Observation(
        "sql", "It took longer than 0.05 s and was stopped.", error=True
    )


async def test_a_hanging_query_is_killed_and_blocks_no_episode(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreters, "LIMITS", Limits(wall=0.5))
    await called(database.reset, PROBLEM)
    await ask("DELETE FROM products", database)
    zeros = "hex(zeroblob(400000))"
    slow = ENDLESS.replace("count(*)", f"sum(instr({zeros}, substr({zeros}, 1, 400000 - i) || 1))")
    result = await ask(slow, database)
    assert (
        result.error,
        "Stopped: it took longer" in result.content,
        databases.STOPPED in result.content,
    ) == (True,) * 3
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n3"


@pytest.mark.slow
async def test_the_memory_of_a_query_is_limited(database: Database) -> None:
    many = ENDLESS.replace(
        "SELECT count(*) FROM n", "SELECT i, randomblob(900000) AS b FROM n LIMIT 400"
    )
    assert (await ask(f"{many.replace(' LIMIT', ' ORDER BY b LIMIT')}", database)).error
    assert (await ask(f"CREATE TEMP TABLE big AS {many}", database)).error
    assert (await ask(many, database)).error
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n3"


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("9e999", "inf"),
        ("x'00ff'", "b'\\x00\\xff'"),
        ("9223372036854775807", "9223372036854775807"),
        ("char(0)", "\0"),
    ],
)
async def test_values_of_all_types_are_returned(
    database: Database, expression: str, text: str
) -> None:
    assert await ask(f"SELECT {expression} AS v", database) == Observation("sql", f"v\n{text}")


async def test_the_state_includes_open_transactions(database: Database) -> None:
    before = database.state_key()
    await ask("BEGIN", database)
    await ask("DELETE FROM products", database)
    assert database.state_key() != before
    assert (await ask("ROLLBACK", database)).content == "Done."
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n3"


async def test_an_invalid_script_is_refused() -> None:
    with pytest.raises(ToolError, match="syntax error"):
        await Database().reset(Problem("p", "?", {"database": "CREATE TALBE x"}))


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
async def test_statements_cannot_open_files(database: Database, statement: str) -> None:
    assert (await ask(statement, database)).error


@pytest.mark.parametrize("restored", [False, True])
async def test_the_size_of_a_database_is_limited(database: Database, restored: bool) -> None:
    if restored:
        await called(database.restore, await called(database.snapshot))
    await ask("CREATE TABLE big (x BLOB)", database)
    fill = (
        "INSERT INTO big SELECT randomblob(900000) FROM (WITH RECURSIVE n(i) AS "
        "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) SELECT i FROM n)"
    )
    result = await ask(fill, database)
    assert (result.error, result.content) == (True, "OperationalError: database or disk is full")


async def test_a_snapshot_can_be_restored(database: Database) -> None:
    before = await called(database.snapshot)
    await ask("DROP TABLE products", database)
    await called(database.restore, before)
    assert (await ask("SELECT count(*) AS n FROM products", database)).content == "n\n3"
    assert (await ask("PRAGMA user_version = 3", database)).error
