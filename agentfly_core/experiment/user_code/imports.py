"""What a module imports, read from its text; nothing is run, and what is imported by a name made at
run time is not seen.
"""

from __future__ import annotations

import ast
from collections import deque
from contextlib import suppress
from importlib.util import resolve_name

from agentfly_core.experiment.user_code.syntax import parsed

FOR_TYPES = ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def imported(source: bytes, package: str) -> set[str]:
    """The names that may be modules, in functions too, of a module in this package: of `from shop
    import prices` both `shop` and `shop.prices`. What only type checkers import is left out.
    """
    tree, names = parsed(source), set[str]()
    waiting = deque[ast.AST]([tree] if tree else [])
    while waiting:
        node = waiting.popleft()
        if isinstance(node, ast.If) and ast.unparse(node.test) in FOR_TYPES:
            waiting.extend(node.orelse)
            continue
        waiting.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = "." * node.level + (node.module or "")
            with suppress(ImportError):  # beyond the top, which fails when it is run: as it stands
                origin = resolve_name(origin, package)
            names.update([origin, *(f"{origin}.{alias.name}" for alias in node.names)])
    return names
