"""An author's own code: files of the modules that an experiment names, and affected stages."""

from __future__ import annotations

import importlib.util
import re
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from agentfly_core.authoring.reward import Reward
from agentfly_core.config.experiment import Settings
from agentfly_core.config.reference import run_step
from agentfly_core.config.tasks import datasets
from agentfly_core.experiment.task import Task
from agentfly_core.system.files import sha256
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.module_search import INSTALLED, OURS

Code = Mapping[str, Mapping[str, str]]
"""By module, the sha256 of the files that it depends on:
`{"my_shop.tools": {"my_shop/__init__.py": "e3b0...", "my_shop/tools.py": "9f2c..."}}`."""
Modules = Set[tuple[str, str]]
"""Stages with the author's modules that count for them: `{("rollout", "my_tools")}`."""
COUNTED = ("prepare", "demonstrate", "rollout", "score", "update")
"""Stages whose keys contain an author's code."""
IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+(\w+)|import[ \t]+([\w., \t]+))", re.MULTILINE)
LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
SUFFIXES = (".py", ".so", ".pyd")


@dataclass(frozen=True)
class _Package:
    """The files of a top-level module or package, and the top-level names that they import."""

    files: dict[str, str]
    imports: set[str]


_as_imported: WeakKeyDictionary[ModuleType, _Package] = WeakKeyDictionary()


def digests_of(modules: Modules, code: Code) -> dict[str, dict[str, str]]:
    """Return 16 hex digits for each of the author's modules, by stage, as in `Settings.code`."""
    digests: dict[str, dict[str, str]] = {}
    for stage, module in sorted(modules):
        if module in code:
            digests.setdefault(stage, {})[module] = digest(dict(code[module]))[:16]
    return digests


def code_of(modules: Modules, code_files: Sequence[str]) -> Code:
    """Return the author's code as it is now. Each module depends on all `code_files`.

    Raises ValueError for a module without a file, and for a file that does not exist.
    """
    if missing := [name for name in code_files if not Path(name).is_file()]:
        raise ValueError(f"code_files: {missing[0]!r} is missing in {Path.cwd()}.")
    data = {name: sha256(Path(name)) for name in code_files}
    code = {module: sources(module) for module in sorted({module for _, module in modules})}
    return {module: {**files, **data} for module, files in code.items() if files}


def modules_of(settings: Settings, tasks: Mapping[str, Task]) -> Modules:
    """Return the modules that an experiment names, each with a stage it affects: `{("rollout",
    "my_tools"), ("demonstrate", "my_tools")}`.
    """
    played = [settings.template.use, settings.agent.use]
    for task in tasks.values():
        played += [*(tool.use for tool in task.settings.tools), *task.settings.environments]
    # rewards with environments run in the rollout
    during = [path for path, reward in _rewards(tasks) if reward.needs]
    further = (*settings.evaluate.datasets.values(), *settings.promotion.datasets.values())
    shown = (settings.warm_start, *(task.warm_start for task in settings.tasks.values()))
    demonstrated = [warm_start.demonstrations for warm_start in shown if warm_start]
    paths = {
        "prepare": [p for data in (settings.data, *further) for p in datasets(data.model_dump())],
        "demonstrate": [*played, *(path for path in demonstrated if run_step(path) is None)],
        "rollout": [*played, *during],
        "score": [path for path, reward in _rewards(tasks) if not reward.needs],
        "update": [settings.algorithm.use],
    }
    return {(stage, path.partition(":")[0]) for stage, each in paths.items() for path in each}


def _rewards(tasks: Mapping[str, Task]) -> Iterator[tuple[str, Reward]]:
    for task in tasks.values():
        for (name, part), reward in zip(task.settings.rewards.items(), task.rewards, strict=True):
            yield part.use or name, reward


def sources(module: str) -> dict[str, str]:
    """Return the sha256 of each file of a module's top-level package, and of its imports that are
    not installed. Empty for AgentFly's modules and the standard library.

    An imported package keeps the digests of the first call, because that code runs.
    """
    top = module.partition(".")[0]
    if top in OURS or top in sys.stdlib_module_names:
        return {}
    if (spec := _spec(top)) is None:
        raise ValueError(
            f"{module} has no source file. Move it to a module such as {top}.py, for example from "
            "a notebook."
        )
    packages = {top: _package(top, spec)}
    waiting = {*packages[top].imports}
    while waiting:
        name = waiting.pop()
        if name not in packages and (spec := _spec(name)) and not _is_installed(spec):
            packages[name] = _package(name, spec)
            waiting |= packages[name].imports
    return {file: sha for name in sorted(packages) for file, sha in packages[name].files.items()}


def _spec(top: str) -> ModuleSpec | None:
    """The import spec of a top-level module, or None without a file."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # the main module of a notebook
        return None
    return spec if spec and (spec.has_location or spec.submodule_search_locations) else None


def _is_installed(spec: ModuleSpec) -> bool:
    path = _roots(spec)[0].resolve()
    return not {*INSTALLED}.isdisjoint(path.parts) or path.is_relative_to(LIBRARY)


def _roots(spec: ModuleSpec) -> list[Path]:
    """The folders of a package, or the file of a module."""
    return [Path(root) for root in spec.submodule_search_locations or [str(spec.origin)]]


def _package(name: str, spec: ModuleSpec) -> _Package:
    loaded = sys.modules.get(name)
    if loaded is not None and loaded in _as_imported:
        return _as_imported[loaded]
    package = _Package({}, set())
    for root in _roots(spec):
        inside = sorted(root.rglob("*")) if root.is_dir() else [root]
        for path in (path for path in inside if path.suffix in SUFFIXES and path.is_file()):
            package.files[path.relative_to(root.parent).as_posix()] = sha256(path)
            package.imports.update(_imports(path) if path.suffix == ".py" else ())
    if loaded is not None:
        _as_imported[loaded] = package
    return package


def _imports(path: Path) -> set[str]:
    """The top-level names that a source imports. Text may look like an import, so a name counts
    only if a module of this name exists.
    """
    tops = set[str]()
    for package, modules in IMPORT.findall(path.read_bytes()):
        for name in (package, *modules.split(b",")):
            tops.update(first.decode() for first in re.findall(rb"^\s*(\w+)", name))
    return {top for top in tops if top not in OURS and top not in sys.stdlib_module_names}
