"""Digests of the functions and classes in a source file, with which edits are named."""

from __future__ import annotations

import ast
import hashlib
from pathlib import PurePath

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def definitions(path: PurePath, source: bytes) -> dict[str, str]:
    """Digest each top-level function and class of `my_shop/prices.py`: `{"my_shop.prices.price":
    "9f2c51aa"}`. All other lines count as `my_shop.prices`, and so does a file that is no Python.
    """
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    lines = source.splitlines(keepends=True)
    names = [module] * len(lines)
    for node in _body(source):
        if isinstance(node, DEFINITIONS):
            first = min(line.lineno for line in (node, *node.decorator_list)) - 1
            last = node.end_lineno or node.lineno
            names[first:last] = [f"{module}.{node.name}"] * (last - first)
    digests = {module: hashlib.sha256()}
    for name, line in zip(names, lines, strict=True):
        digests.setdefault(name, hashlib.sha256()).update(line)
    return {name: digest.hexdigest()[:8] for name, digest in digests.items()}


def _body(source: bytes) -> list[ast.stmt]:
    try:
        return ast.parse(source).body
    except (SyntaxError, ValueError):  # a package may contain files that nobody imports
        return []
