"""A SQLite database that belongs to an episode and runs in a sandbox."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import ToolError
from agentfly_core.environments.interpreter import LIMITS, Interpreter
from agentfly_core.records.trajectory import Problem
from agentfly_core.sandbox.model_feedback import feedback

SECONDS = 5.0
PAGES = 4096  # pages of 4 KiB each
LONGEST = 1_000_000  # bytes of one value
MOST_FOUND = 500_000  # characters
STOPPED = "The database is again as it was at first."
_PROGRAM = f"""
import base64, hashlib, json, math, sqlite3, time
OUTSIDE = sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA
opened = sqlite3.connect(":memory:", isolation_level=None)
opened.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, {LONGEST})

def trusted(work):
    opened.set_authorizer(None)
    opened.set_progress_handler(None, 0)
    work()
    opened.execute("PRAGMA max_page_count = {PAGES}")
    content = opened.serialize()
    deny, ok = sqlite3.SQLITE_DENY, sqlite3.SQLITE_OK
    opened.set_authorizer(lambda what, *_: deny if what in OUTSIDE else ok)
    return content

def tell(found, work=lambda: None):
    print(json.dumps([hashlib.sha256(trusted(work)).hexdigest(), found]))

def plain(value):
    odd = isinstance(value, bytes) or isinstance(value, float) and not math.isfinite(value)
    return str(value) if odd else value

def run(statement, most, seconds):
    over = time.monotonic() + seconds
    opened.set_progress_handler(lambda: time.monotonic() > over, 10_000)
    try:
        cursor = opened.execute(statement)
        rows = [[plain(value) for value in row] for row in cursor.fetchmany(most)]
        table = [[column[0] for column in cursor.description or ()], rows, sum(1 for _ in cursor)]
        fits = len(json.dumps(table)) <= {MOST_FOUND}
        tell(table if fits else "It found too much: ask for less of it.")
    except (sqlite3.Error, sqlite3.Warning, ValueError) as error:
        late = time.monotonic() > over and f"It took longer than {{seconds:g}} s and was stopped."
        tell(late or f"{{type(error).__name__}}: {{error}}")

def save():
    with open("snapshot", "wb") as file:
        file.write(trusted(lambda: None))
"""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The result of an SQL statement: `QueryResult(("name", "price"), (("pens", 3),), more=0)`.

    `more` is the number of rows that the result leaves out. Values are int, float, str or None. A
    blob is converted to text, such as "b'\\x00'".
    """

    columns: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    more: int


class Database(Environment):
    """A SQLite database for one episode.

    An SQL script fills the database. The `facts` of a problem contain this script:

        {"database": "CREATE TABLE products (name TEXT, price INT); "
                     "INSERT INTO products VALUES ('pens', 3)"}

    Statements run in a sandbox with limits of time and memory. The database has at most 16 MiB.
    PRAGMA statements are refused.
    """

    def __init__(self) -> None:
        self._interpreter = Interpreter()
        self._state = ""

    async def reset(self, problem: Problem) -> None:
        """Fill a new database with the SQL script `problem.facts["database"]`.

        Raises KeyError if this fact is missing, and ToolError if the script fails.
        """
        script: str = problem.facts["database"]
        await self._interpreter.reset(problem)
        self._beginning = f"{_PROGRAM}\ntell(None, lambda: opened.executescript({script!r}))"
        await self._do(self._beginning)

    async def close(self) -> None:
        await self._interpreter.close()

    async def run(self, statement: str, most: int) -> QueryResult:
        """Run an SQL statement for at most 5 seconds, and return at most `most` rows.

        Raises ToolError if the statement fails, takes too long, or returns too much text. Also
        raises ToolError if the sandbox is killed during the statement. In this case, all changes
        are lost, and the database has its initial content again.
        """
        answer = await self._do(f"run({statement!r}, {most}, {SECONDS})")
        if isinstance(answer, str):
            raise ToolError(answer)
        columns, rows, more = answer
        return QueryResult(tuple(columns), tuple(map(tuple, rows)), more)

    async def snapshot(self) -> bytes:
        """Return the serialized database, including the changes of an open transaction."""
        result = await self._interpreter.run("save()", collect=["snapshot"])
        feedback(result, LIMITS)
        return result.files["snapshot"]

    async def restore(self, snapshot: bytes) -> None:
        """Restore a snapshot. A transaction that was open in the snapshot counts as committed."""
        content = base64.b64encode(snapshot).decode()
        await self._do(f"tell(None, lambda: opened.deserialize(base64.b64decode({content!r})))")

    def state_key(self) -> str:
        """Return a digest of the database's bytes.

        Equal tables may have unequal digests, for example after adding a row and deleting it.
        """
        return self._state

    async def _do(self, code: str) -> Any:
        """Run code in the interpreter. The code may use the functions in _PROGRAM.

        The result is the value that the code passes to `tell`, a function in _PROGRAM. If the
        interpreter was killed, a new interpreter is started with the initial content of the
        database, and ToolError is raised.
        """
        result = await self._interpreter.run(code)
        # a script that kills the program must not be run again and again
        if not self._interpreter.alive and code != self._beginning:
            await self._do(self._beginning)
            feedback(result, LIMITS, STOPPED)
        self._state, answer = json.loads(feedback(result, LIMITS).splitlines()[-1])
        return answer
