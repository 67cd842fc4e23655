"""Shorten long JSON answers: replace values by their types, or extract a value in a sandbox."""

import json
from typing import Any

from agentfly_core.sandbox import Limits, run

LONG = 6000
"""The default maximum length of a service's answer that an agent reads in full, in characters
(about 1,500 tokens). From longer answers, the speaker `observer` of the agent `CoopTeam` extracts a
value by code. The agent `OneAgent` reads only the first LONG characters of a longer answer.
"""
LIMITS = Limits(wall=10.0, cpu=8, processes=8)
_PROGRAM = """
import json
with open("given.json") as file:
    code, body = json.load(file)
own = {"__name__": "extraction"}
exec(compile(code, "extraction.py", "exec"), own)
result = own["extract"](json.loads(body))
with open("result.json", "w") as file:
    json.dump(str(result), file)
"""


class ExtractionError(Exception):
    """Raised if extraction code fails. The message is the last line of the code's error output."""


def schema(value: Any) -> Any:
    """Replace all strings and numbers in a JSON value by the names of their types.

    Lists keep only their first element. For example, `{"items": [{"key": "a"}, {"key": "b"}]}`
    becomes `{"items": [{"key": "str"}]}`.
    """
    if isinstance(value, dict):
        return {name: schema(one) for name, one in value.items()}
    if isinstance(value, list):
        return [schema(one) for one in value[:1]]
    return type(value).__name__


async def extracted(code: str, body: str) -> str:
    """Run `code` in a sandbox, and call its function `extract` with the parsed JSON of `body`.

    Returns the result as text. Raises ExtractionError if the code fails.
    """
    given = json.dumps([code, body])
    done = await run(_PROGRAM, {"given.json": given}, limits=LIMITS, collect=["result.json"])
    if (result := done.files.get("result.json")) is None:
        last = (done.stderr.strip().splitlines() or [done.status.value])[-1]
        raise ExtractionError(last)
    return str(json.loads(result))
