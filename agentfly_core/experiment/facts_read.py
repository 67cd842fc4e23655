"""Facts of a problem that an author's function reads, found in its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from agentfly_core.system import parsing


def facts_read(function: Callable[..., Any]) -> list[str]:
    """Return the names in `problem.facts["answer"]`, in order; empty without a source.

    Reads `__call__` of classes and objects. Other names for the facts and reads in called functions
    are not found.
    """
    owner = function if isinstance(function, type) else type(function)
    code = function if inspect.isroutine(function) else owner.__call__
    try:
        tree = parsing.module(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):  # a lambda, or code typed at a prompt
        return []
    names = []
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(
                value=ast.Attribute(attr="facts"),
                slice=ast.Constant(value=str(name)),
                ctx=ast.Load(),
            ):
                names.append(name)
    return list(dict.fromkeys(names))
