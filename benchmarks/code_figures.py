"""Structure of the code: modules, functions, names, loose types, packages and their imports.

    python -m benchmarks.code_figures [FOLDER ...] [--room]

Counts over agentfly_core, flows and tasks of the repository in each FOLDER (default: the current
folder), one column per repository. With `--room` each repository has a table with one row per
package. A helper is a private or nested function. Also counted are functions with one caller that
no package's `__init__` exports. One caller means that a function is named in one place. Most of
them are called there, and could be inlined; the rest are callbacks, decorators or table entries.
"""

from __future__ import annotations

import argparse
import ast
import statistics
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from rich.console import Console
from rich.table import Table

PACKAGES = ("agentfly_core", "flows", "tasks")
LOOSE = ("Any", "object", "cast")
WHOLE_EXPERIMENT = {"Experiment", "Settings"}
VAGUE = ("found", "said", "known", "told", "asked")
MARKS = ("noqa: E501", "fmt: off", "fmt: skip")
Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.Module | ast.ClassDef | Function


def main() -> None:
    """Print one table of all repositories, or with `--room` a table per repository."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, default=[Path.cwd()])
    parser.add_argument("--room", action="store_true", help="one row per package")
    options = parser.parse_args()
    repositories = [Repository.read(folder.resolve()) for folder in options.folders]
    console = Console(width=160 if options.room else None)
    if options.room:
        for repository in repositories:
            console.print(by_room(repository))
        return
    table = Table("", *(repository.name for repository in repositories))
    columns = [
        {**figures(one, one.modules), **import_figures(one), **package_figures(one), **names(one)}
        for one in repositories
    ]
    for name in columns[0]:
        table.add_row(name, *(column[name] for column in columns))
    console.print(table)


@dataclass(frozen=True)
class Module:
    """A source file: `Module("agentfly_core.rl.gae", Path("agentfly_core/rl/gae.py"), text)`."""

    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """The package that the module belongs to: a package of agentfly_core, `flows` or
        `tasks`.
        """
        parts = self.path.parts
        return parts[1] if parts[0] == PACKAGES[0] and len(parts) > 2 else parts[0]

    @property
    def functions(self) -> list[Function]:
        """All functions and methods of the module, including nested functions."""
        return [node for node in ast.walk(self.tree) if isinstance(node, Function)]

    @cached_property
    def imported(self) -> dict[str, str]:
        """The qualified name of each imported name: `{"files": "agentfly_core.system.files"}`."""
        qualified: dict[str, str] = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                qualified |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    qualified[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        return qualified


@dataclass(frozen=True)
class Repository:
    """All modules in a checkout of a repository."""

    name: str
    modules: Sequence[Module]

    @classmethod
    def read(cls, folder: Path) -> Repository:
        """Read the Python files that git tracks in a folder."""
        listed = subprocess.check_output(["git", "ls-files", *PACKAGES], cwd=folder, text=True)
        paths = [Path(line) for line in listed.splitlines() if line.endswith(".py")]
        modules = [Module(_name(path), path, (folder / path).read_text()) for path in paths]
        return cls(folder.name, modules)

    @cached_property
    def doors(self) -> set[str]:
        """The qualified names that packages export in their `__init__.py`."""
        doors = [one for one in self.modules if one.path.name == "__init__.py"]
        return {name for door in doors for name in door.imported.values()}

    @cached_property
    def one_caller(self) -> dict[int, Definition]:
        """Functions that are mentioned only once and not exported.

        The keys are the ids of their AST nodes. Special methods and overridden methods are left
        out.
        """
        mentions = Counter(key for key, _ in self._mentions())
        methods = Counter(one.key for one in self._definitions() if one.is_method)
        single = {}
        for one in self._definitions():
            special = one.node.name.startswith("__") or one.owner in self.doors
            interface = one.is_method and methods[one.key] > 1
            if mentions[one.key] == 1 and not special and not interface:
                single[id(one.node)] = one
        return single

    def _definitions(self) -> Iterator[Definition]:
        for module in self.modules:
            yield from _definitions(module.tree, module.name)

    @cached_property
    def called(self) -> set[str]:
        """The `Definition.key` of each function that is called in at least one place."""
        return {key for key, called in self._mentions() if called}

    def _mentions(self) -> Iterator[tuple[str, bool]]:
        """Yield the `Definition.key` of each mention of a function, and whether it is a call."""
        functions = {one.key for one in self._definitions()}
        for module in self.modules:
            calls = {id(node.func) for node in ast.walk(module.tree) if isinstance(node, ast.Call)}
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Name):
                    local = f"{module.name}.{node.id}"
                    key = local if local in functions else module.imported.get(node.id, local)
                    yield key, id(node) in calls
                elif isinstance(node, ast.Attribute):
                    target = module.imported.get(ast.unparse(node.value), "")
                    qualified = f"{target}.{node.attr}"
                    key = qualified if qualified in functions else f".{node.attr}"
                    yield key, id(node) in calls


@dataclass(frozen=True)
class Definition:
    """The definition of a function.

    `owner` is the qualified name of the function or class at the top level of the module that
    contains it (or of the function itself).
    """

    node: Function
    module: str
    owner: str
    is_method: bool
    is_nested: bool

    @property
    def is_helper(self) -> bool:
        """Whether the function is private or nested."""
        return self.is_nested or self.node.name.startswith("_")

    @property
    def key(self) -> str:
        """A text that identifies mentions of the function.

        For a function, it is the qualified name. For a method, it is a dot and the method's name.
        """
        return f".{self.node.name}" if self.is_method else f"{self.module}.{self.node.name}"


def _definitions(scope: Scope, module: str, owner: str = "") -> Iterator[Definition]:
    for node in _children(scope):
        within = owner or f"{module}.{node.name}"
        if isinstance(node, Function):
            is_method, is_nested = isinstance(scope, ast.ClassDef), isinstance(scope, Function)
            yield Definition(node, module, within, is_method, is_nested)
        yield from _definitions(node, module, within)


def _children(scope: ast.AST) -> Iterator[ast.ClassDef | Function]:
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, ast.ClassDef | Function):
            yield node
        else:
            yield from _children(node)


def figures(repository: Repository, modules: Sequence[Module]) -> dict[str, str]:
    """Count functions, lines and so on in some modules of a repository.

    The keys are the names of the table's rows.
    """
    lines = [line for module in modules for line in module.text.splitlines()]
    nodes = [node for module in modules for node in ast.walk(module.tree)]
    functions = [node for module in modules for node in module.functions]
    lengths = sorted((node.end_lineno or 0) - node.lineno + 1 for node in functions) or [0]
    p90 = lengths[len(lengths) * 9 // 10]
    single = [
        repository.one_caller[id(node)] for node in functions if id(node) in repository.one_caller
    ]
    helpers = [one for one in single if one.is_helper]
    called = sum(one.key in repository.called for one in helpers)
    long = sum(len(line) > 100 for line in lines)
    ignores = sum("# type: ignore" in line for line in lines)
    loose = sum(map(loose_types, modules)) + ignores
    flat = [module for module in modules if module.path.parent == Path(PACKAGES[0])]
    return {
        "modules directly in the core": str(len(flat)),
        "modules": str(len(modules)),
        "lines": f"{len(lines):,}",
        "functions": f"{len(functions):,}",
        "statements": f"{sum(isinstance(n, ast.stmt) and not _is_docstring(n) for n in nodes):,}",
        "median / p90 length": f"{statistics.median(lengths):g} / {p90}",
        "helpers with one caller": share(len(helpers), len(functions)),
        "of these called there, not handed on": share(called, len(functions)),
        "functions with one caller, in no door": share(len(single), len(functions)),
        "lambdas": str(sum(isinstance(node, ast.Lambda) for node in nodes)),
        "lines above 100 columns": share(long, len(lines)),
        "noqa: E501, fmt: off": str(sum(mark in line for line in lines for mark in MARKS)),
        "loose types per 1,000 lines": f"{1000 * loose / len(lines):.1f}",
    }


def share(count: int, of: int) -> str:
    """Format a count and its share of the total `of`: `share(3, 60)` is "3 = 5.0%"."""
    return f"{count} = {count / max(of, 1):.1%}"


def by_room(repository: Repository) -> Table:
    """Make a table with a row for each package of agentfly_core, for flows, for tasks, and in
    total.
    """
    rooms: defaultdict[str, list[Module]] = defaultdict(list)
    for module in repository.modules:
        rooms[module.room].append(module)
    rows = {name: figures(repository, rooms[name]) for name in sorted(rooms)}
    rows["all"] = figures(repository, repository.modules)
    columns = [name for name in rows["all"] if name != "modules directly in the core"]
    table = Table("room", *columns, title=repository.name)
    for name, row in rows.items():
        table.add_row(name, *(row[column] for column in columns))
    return table


def _is_docstring(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def loose_types(module: Module) -> int:
    """Count the uses of Any, object, cast, bare Callable and bare dict as types."""
    nodes = list(ast.walk(module.tree))
    subscripted = {id(node.value) for node in nodes if isinstance(node, ast.Subscript)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    loose = sum(node.id in LOOSE for node in names)
    bare = sum(node.id == "Callable" and id(node) not in subscripted for node in names)
    annotations = [getattr(node, "annotation", None) for node in nodes]
    annotations += [getattr(node, "returns", None) for node in nodes]
    dicts = sum(isinstance(one, ast.Name) and one.id == "dict" for one in annotations)
    return loose + bare + dicts


def import_figures(repository: Repository) -> dict[str, str]:
    """Count the modules on the longest chain of imports, and the import cycles."""
    names = {module.name for module in repository.modules}
    edges = {one.name: set(_imports(one, names)) - {one.name} for one in repository.modules}
    reach = {name: _reachable(name, edges) for name in names}
    circle_of = {
        name: frozenset({name} | {other for other in reach[name] if name in reach[other]})
        for name in names
    }

    @cache
    def depth(circle: frozenset[str]) -> int:
        below = {circle_of[other] for name in circle for other in edges[name]} - {circle}
        return len(circle) + max(map(depth, below), default=0)

    core = [circle_of[name] for name in names if name.startswith(PACKAGES[0])]
    circles = {circle for circle in circle_of.values() if len(circle) > 1}
    return {
        "deepest import chain": str(max(map(depth, circle_of.values()))),
        "deepest import chain of the core": str(max(map(depth, core))),
        "import circles": str(len(circles)),
    }


def package_figures(repository: Repository) -> dict[str, str]:
    """Count packages, and pairs of packages in which one imports the other."""
    rooms = {module.name: module.room for module in repository.modules}
    arrows = {
        (module.room, rooms[imported])
        for module in repository.modules
        for imported in _imports(module, set(rooms))
        if module.room != rooms[imported] and PACKAGES[0] not in (module.room, rooms[imported])
    }
    return {
        "packages": str(len({*rooms.values()} - {PACKAGES[0]})),
        "imports between packages": str(len(arrows)),
    }


def names(repository: Repository) -> dict[str, str]:
    """Count functions that take a whole experiment, types with equal names, and vague variables."""
    functions = [one for module in repository.modules for one in module.functions]
    types, vague = definitions(repository), vague_names(repository)
    return {
        "functions with the whole experiment": str(sum(map(_takes_experiment, functions))),
        "public type names": str(len(types)),
        "public type names with two definitions": str(sum(n > 1 for n in types.values())),
        f"assignments to {' / '.join(VAGUE)}": " / ".join(str(vague[name]) for name in VAGUE),
    }


def definitions(repository: Repository) -> Counter[str]:
    """Count the modules that define each public type: `Counter({"Trajectory": 1, ...})`."""
    return Counter(name for module in repository.modules for name in set(_types(module)))


def vague_names(repository: Repository) -> Counter[str]:
    """Count the assignments to each variable name of VAGUE: `Counter({"found": 3})`."""
    return Counter(
        node.id
        for module in repository.modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VAGUE
    )


def _takes_experiment(function: Function) -> bool:
    """Whether a parameter's annotation names one of the types of a whole experiment."""
    given = function.args
    annotations = [one.annotation for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    nodes = [node for one in annotations if one for node in ast.walk(one)]
    return any(isinstance(node, ast.Name) and node.id in WHOLE_EXPERIMENT for node in nodes)


def _types(module: Module) -> Iterator[str]:
    """Yield the names of public classes and type aliases at the top level, such as "Trajectory"."""
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        assigned = [one.id for one in targets if isinstance(one, ast.Name)]
        defined = [node.name] if isinstance(node, ast.ClassDef) else assigned
        yield from [name for name in defined if name[0].isupper() and not name.isupper()]


def _name(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def _imports(module: Module, names: set[str]) -> Iterator[str]:
    for imported in module.imported.values():
        parent = imported.rpartition(".")[0]
        yield from [name for name in (imported, parent) if name in names][:1]


def _reachable(name: str, edges: Mapping[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [name]
    while ahead:
        for other in edges[ahead.pop()] - reached:
            reached.add(other)
            ahead.append(other)
    return reached


if __name__ == "__main__":
    main()
