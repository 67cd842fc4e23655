"""`ast.parse` with retries: in threads CPython 3.11 may raise SystemError (gh-106905)."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from contextlib import suppress
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
TRIES = 5


def _tried_again(parse: Callable[P, T]) -> Callable[P, T]:
    @functools.wraps(parse)
    def parsed(*args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(TRIES):
            with suppress(SystemError):
                return parse(*args, **kwargs)
        return parse(*args, **kwargs)

    return parsed


@_tried_again
def module(source: str | bytes) -> ast.Module:
    """The syntax tree of a program; raises what `ast.parse` does."""
    return ast.parse(source)


@_tried_again
def expression(text: str) -> ast.Expression:
    """The syntax tree of an expression; raises what `ast.parse` does."""
    return ast.parse(text, mode="eval")
