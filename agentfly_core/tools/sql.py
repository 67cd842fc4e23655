"""The tool for SQL on an episode's database."""

from agentfly_core.authoring.tool import tool
from agentfly_core.environments.database import Database
from agentfly_core.sandbox.preflight import chosen

ROWS = 50


@tool(ready=chosen)
async def sql(statement: str, *, database: Database) -> str:
    """Run one statement of SQLite's SQL on the database and read the rows that it finds.

    Args:
        statement: one statement, for example: SELECT name FROM products ORDER BY price LIMIT 3
    """
    result = await database.run(statement, ROWS)
    if not result.columns:
        return "Done."
    texts = [["NULL" if value is None else str(value) for value in row] for row in result.rows]
    more = [f"[... {result.more} more rows ...]"] if result.more else []
    return "\n".join([*map(" | ".join, [result.columns, *texts]), *more])
