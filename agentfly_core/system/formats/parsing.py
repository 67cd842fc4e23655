"""`ast.parse` with retries. In threads, CPython 3.11 may raise SystemError (gh-106905)."""

import ast
from contextlib import suppress

TRIES = 5


def expression(text: str) -> ast.Expression:
    """Parse a Python expression to a syntax tree. Raises the same errors as `ast.parse`."""
    for _ in range(TRIES):
        with suppress(SystemError):
            return ast.parse(text, mode="eval")
    return ast.parse(text, mode="eval")
