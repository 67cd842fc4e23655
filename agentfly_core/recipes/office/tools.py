"""Tools that query the database of an office. Each call reads one table."""

from typing import Literal

from agentfly_core import tool
from agentfly_core.recipes.office.environment import TABLES, Office

TableName = Literal["orders", "people", "companies", "cities"]
Column = Literal["number", "person", "amount", "name", "company", "city"]
OrderColumn = Literal["number", "person"]


@tool
async def find(
    table: TableName, column: Column, value: str | int, *, office: Office
) -> list[dict[str, str | int]]:
    """See the rows of a table in which a column has a value, ten at most.

    Args:
        table: orders (number, person, amount), people (number, name, company), companies (number,
            name, city) or cities (number, name); person, company and city are numbers of rows
        column: one of the table's columns
        value: what it has there, for example 482 or Anna Berg
    """
    columns = TABLES[table]
    rows = office.select(", ".join(columns), table, column, value)
    return [dict(zip(columns, row, strict=True)) for row in rows]


@tool
async def count(table: TableName, column: Column, value: str | int, *, office: Office) -> int:
    """Count the rows of a table in which a column has a value.

    Args:
        table: orders, people, companies or cities
        column: one of the table's columns
        value: what it has there
    """
    [(number,)] = office.select("count(*)", table, column, value)
    return int(number)


@tool
async def total(column: OrderColumn, value: str | int, *, office: Office) -> int:
    """Add up the amounts of the orders in which a column has a value.

    Args:
        column: number or person
        value: what it has there
    """
    [(amount,)] = office.select("coalesce(sum(amount), 0)", "orders", column, value)
    return int(amount)
