"""The database of an office, looked up one table at a time."""

import pytest

from agentfly_core.recipes.office.environment import Office
from agentfly_core.recipes.office.tools import count, find, total
from agentfly_core.records.trajectory import Ending, Problem, ToolCall
from agentfly_core.testing.episodes import play, rollout_spec

SCRIPT = """
CREATE TABLE orders (number INTEGER PRIMARY KEY, person INTEGER, amount INTEGER);
CREATE TABLE people (number INTEGER PRIMARY KEY, name TEXT, company INTEGER);
CREATE TABLE companies (number INTEGER PRIMARY KEY, name TEXT, city INTEGER);
CREATE TABLE cities (number INTEGER PRIMARY KEY, name TEXT);
INSERT INTO orders VALUES (482, 57, 36), (117, 57, 20), (300, 60, 99);
INSERT INTO people VALUES (57, 'Anna Berg', 31), (60, 'Hugo Lind', 31);
INSERT INTO companies VALUES (31, 'Amber Mills', 12);
INSERT INTO cities VALUES (12, 'Lyon');
"""
PROBLEM = Problem("city", "In which city?", {"database": SCRIPT, "answer": "Lyon"})


async def replies(*calls: ToolCall) -> list[tuple[str, bool]]:
    trajectory = await play([[*calls], "Done."], find, count, total, problem=PROBLEM)
    return [(observation.content, observation.error) for observation in trajectory.observations]


async def test_rows_are_selected_counted_and_summed() -> None:
    assert await replies(
        ToolCall("find", {"table": "orders", "column": "number", "value": 482}),
        ToolCall("find", {"table": "people", "column": "name", "value": "Anna Berg"}),
        ToolCall("count", {"table": "people", "column": "company", "value": "31"}),
        ToolCall("count", {"table": "cities", "column": "name", "value": "Oulu"}),
        ToolCall("total", {"column": "person", "value": 57}),
        ToolCall("total", {"column": "person", "value": 99}),
    ) == [
        ('[{"number": 482, "person": 57, "amount": 36}]', False),
        ('[{"number": 57, "name": "Anna Berg", "company": 31}]', False),
        ("2", False),
        ("0", False),
        ("56", False),
        ("0", False),
    ]


async def test_at_most_ten_rows_are_shown_in_order() -> None:
    rows = ", ".join(f"({number}, 57, 10)" for number in range(119, 99, -1))
    many = Problem(
        "many", "?", {"database": f"{SCRIPT} DELETE FROM orders; INSERT INTO orders VALUES {rows};"}
    )
    office = Office()
    await office.reset(many)
    numbers = [(number,) for number in range(100, 110)]
    assert office.select("number", "orders", "person", 57) == numbers
    assert office.select("count(*)", "orders", "person", 57) == [(20,)]
    await office.close()


async def test_wrong_calls_are_reported_to_the_model() -> None:
    results = await replies(
        ToolCall("find", {"table": "orders", "column": "name", "value": 482}),
        ToolCall("find", {"table": "stock", "column": "name", "value": 1}),
    )
    assert results[0] == ("orders has no column 'name'. It has: number, person, amount.", True)
    assert results[1][1] and "'orders', 'people', 'companies' or 'cities'" in results[1][0]


@pytest.mark.parametrize("value", ["1' OR '1'='1", "57; DROP TABLE orders", "", "\0"])
async def test_a_value_is_never_sql(value: str) -> None:
    office = Office()
    await office.reset(PROBLEM)
    assert office.select("number", "people", "name", value) == []
    assert office.select("name", "people", "number", 57) == [("Anna Berg",)]
    await office.close()


async def test_a_reset_office_has_no_old_rows() -> None:
    office = Office()
    await office.reset(PROBLEM)
    other = SCRIPT.replace("'Lyon'", "'Oulu'").replace("(300, 60, 99)", "(301, 60, 99)")
    await office.reset(Problem("other", "?", {"database": other}))
    assert office.select("number, name", "cities", "number", 12) == [(12, "Oulu")]
    assert office.select("number", "orders", "number", 300) == []
    await office.close()


@pytest.mark.parametrize("script", ["ATTACH 'office.db' AS other;", "PRAGMA user_version = 1;"])
async def test_a_script_that_opens_files_fails_the_episode(script: str) -> None:
    rules = rollout_spec(find)
    trajectory = await play(["Done."], problem=Problem("p", "?", {"database": script}), spec=rules)
    assert trajectory.ending is Ending.FAILED
    assert "Office is not ready for problem 'p': DatabaseError: not authorized" in str(
        trajectory.error
    )
