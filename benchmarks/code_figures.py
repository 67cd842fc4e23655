"""How the code is cut: counts of modules, functions, statements, long lines, loose types and import chains.

    .venv/bin/python benchmarks/code_figures.py [FOLDER ...]

Counted over agentfly_core, flows and tasks of the repository in each FOLDER (by default this one), a column each.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGES = ("agentfly_core", "flows", "tasks")
Function = ast.FunctionDef | ast.AsyncFunctionDef
LOOSE = ("Any", "object", "cast")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path.cwd()])
    folders = parser.parse_args().folders
    shown = Table("", *(folder.resolve().name for folder in folders))
    columns = [figures(folder) for folder in folders]
    for name in columns[0]:
        shown.add_row(name, *(column[name] for column in columns))
    Console().print(shown)


def figures(folder: Path) -> dict[str, str]:
    """Each count of one repository, by what it counts."""
    trees = {path: ast.parse((folder / path).read_text()) for path in sources(folder)}
    lines = [line for path in trees for line in (folder / path).read_text().splitlines()]
    functions = [node for tree in trees.values() for node in functions_of(tree)]
    lengths = sorted((node.end_lineno or 0) - node.lineno + 1 for node in functions)
    single = sum(map(single_callers, trees.values()))
    chain, circles = import_chain(trees)
    long = sum(len(line) > 100 for line in lines)
    loose = sum(map(loose_types, trees.values())) + sum("# type: ignore" in x for x in lines)
    flat = [path for path in trees if path.parent == Path("agentfly_core")]
    return {
        "modules directly in the core": str(len(flat)),
        "modules": str(len(trees)),
        "lines": f"{len(lines):,}",
        "functions": f"{len(functions):,}",
        "statements, docstrings not counted": f"{sum(map(statements, trees.values())):,}",
        "median / p90 function length": f"{statistics.median(lengths):g} / {lengths[int(len(lengths) * 0.9)]}",
        "private functions with one caller": f"{single} = {single / len(functions):.1%}",
        "lambdas": str(sum(isinstance(n, ast.Lambda) for t in trees.values() for n in ast.walk(t))),
        "lines above 100 columns": f"{long} = {long / len(lines):.1%}",
        "loose types per 1,000 lines": f"{1000 * loose / len(lines):.1f}",
        "deepest import chain; modules in circles": f"{chain}; {circles}",
    }


def sources(folder: Path) -> list[Path]:
    """The Python files of the repository that git knows."""
    listed = subprocess.check_output(["git", "ls-files", *PACKAGES], cwd=folder, text=True)
    return [Path(line) for line in listed.splitlines() if line.endswith(".py")]


def functions_of(tree: ast.AST) -> list[Function]:
    """All functions and methods, nested ones too."""
    return [node for node in ast.walk(tree) if isinstance(node, Function)]


def statements(tree: ast.Module) -> int:
    """Statements of a module that are no docstrings."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    return sum(not _is_docstring(node) for node in found)


def _is_docstring(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def loose_types(tree: ast.Module) -> int:
    """How often Any, object, cast, a bare Callable or a bare dict stand for a type."""
    inside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    loose = sum(node.id in LOOSE for node in names)
    bare = sum(id(node) not in inside for node in names if node.id == "Callable")
    return loose + bare + sum(_is_bare_dict(node) for node in ast.walk(tree))


def _is_bare_dict(node: ast.AST) -> bool:
    annotation = getattr(node, "annotation", None) or getattr(node, "returns", None)
    return isinstance(annotation, ast.Name) and annotation.id == "dict"


def single_callers(tree: ast.Module) -> int:
    """The private and nested functions of a module that it mentions exactly once."""
    mentions = _mentions(tree)
    functions = functions_of(tree)
    nested = {id(inner) for node in functions for inner in functions_of(node) if inner is not node}
    private = [node for node in functions if node.name.startswith("_") or id(node) in nested]
    return sum(mentions[node.name] == 1 for node in private if not node.name.startswith("__"))


def _mentions(tree: ast.Module) -> Counter[str]:
    found: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
    return found


def import_chain(trees: dict[Path, ast.Module]) -> tuple[int, int]:
    """The modules on the longest chain of imports, and how many modules import each other in circles."""
    modules = {_module(path) for path in trees}
    edges: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees.items():
        edges[_module(path)] = set(_imports(tree, modules)) - {_module(path)}

    @cache
    def depth(component: frozenset[str]) -> int:
        below = {of[other] for name in component for other in edges[name]} - {component}
        return len(component) + max(map(depth, below), default=0)

    reach = {name: _reachable(name, edges) for name in modules}
    of = {a: frozenset({a} | {b for b in reach[a] if a in reach[b]}) for a in modules}
    return max(depth(component) for component in of.values()), sum(len(c) for c in set(of.values()) if len(c) > 1)


def _module(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield from [name for name in (inner, node.module) if name in modules][:1]


def _reachable(name: str, edges: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [name]
    while ahead:
        for other in edges[ahead.pop()] - found:
            found.add(other)
            ahead.append(other)
    return found


if __name__ == "__main__":
    main()
