"""What a module says, by its syntax tree: comments, blank lines and formatting are no part of it.

Docstrings are, since a tool's schema is made of its own.
"""

from __future__ import annotations

import ast
import hashlib
from collections import defaultdict

from agentfly_core.system import parsing

IMPLIED = frozenset({"ctx", "kind", "type_comment"})
"""Fields that follow from the others, or are spelling: `u"a"` is "a"."""
REST = "module level"
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def digest(source: bytes) -> str:
    """16 hex digits of what a module says; of one that does not parse, of its bytes."""
    tree = parsed(source)
    return hashlib.sha256(source).hexdigest()[:16] if tree is None else _digest([tree])


def parsed(source: bytes) -> ast.Module | None:
    """The syntax tree of a module; None for a compiled one, and for what this Python cannot read or
    is nested too deep for it.
    """
    try:
        return parsing.module(source)
    except (SyntaxError, ValueError, RecursionError):  # ValueError: of null bytes
        return None


def definitions(source: bytes) -> dict[str, str]:
    """A digest of each thing that a module defines: `{"lookup": "9f2c...", "Shop.reset": ...,
    "PRICES": ...}`; all else, as its imports and what it does when imported, is `module level`.
    """
    if (tree := parsed(source)) is None:
        return {REST: digest(source)}
    nodes_by_name = defaultdict[str, list[ast.AST]](list)
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            methods = [each for each in statement.body if isinstance(each, FUNCTION)]
            for method in methods:
                nodes_by_name[f"{statement.name}.{method.name}"].append(method)
            statement.body = [each for each in statement.body if each not in methods]
            nodes_by_name[statement.name].append(statement)
        elif isinstance(statement, FUNCTION):
            nodes_by_name[statement.name].append(statement)
        else:  # what it gives a value to
            targets = statement.targets if isinstance(statement, ast.Assign) else []
            if isinstance(statement, ast.AnnAssign | ast.AugAssign):
                targets = [statement.target]
            nodes_by_name[ast.unparse(targets[0]) if targets else REST].append(statement)
    return {name: _digest(nodes) for name, nodes in nodes_by_name.items()}


def _digest(nodes: list[ast.AST]) -> str:
    """Of all that nodes say, from outside to inside. Empty fields, in whose names Pythons differ,
    say nothing.
    """
    words: list[str] = []
    waiting: list[object] = [nodes]  # a long sum is nested deeper than functions may be
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            words.append(f"[{len(item)}")
            waiting.extend(reversed(item))
        elif isinstance(item, ast.Constant):
            words.append(f"{type(item.value).__name__} {item.value!r}")
        elif isinstance(item, ast.AST):
            fields = dict(ast.iter_fields(item))
            given = [key for key in fields if key not in IMPLIED and fields[key] not in (None, [])]
            words.append(f"{type(item).__name__} {' '.join(given)}")
            waiting.extend(fields[key] for key in reversed(given))
        else:
            words.append(repr(item))
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]
