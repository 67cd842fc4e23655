"""Which facts of its problem an author's function reads, as its source says."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

from agentfly_core.system import parsing


def facts_read(function: Callable[..., Any]) -> list[str]:
    """The names in its `problem.facts["answer"]`, in order; none where there is no source.

    Of a class, and of an object, its `__call__` is read. What is read by another name for the
    facts, or through another function, is not seen.
    """
    owner = function if isinstance(function, type) else type(function)
    code = function if inspect.isroutine(function) else owner.__call__
    try:
        tree = parsing.module(textwrap.dedent(inspect.getsource(code)))
    except (OSError, TypeError, SyntaxError):  # a lambda, or what was typed at a prompt
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
