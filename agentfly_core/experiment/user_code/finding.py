"""Where modules are, found without running them."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import sysconfig
from collections.abc import Collection
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from weakref import WeakKeyDictionary

from agentfly_core.experiment.user_code.modules import Code, Module, reached
from agentfly_core.system.files import sha256
from agentfly_core.system.module_search import INSTALLED

LIBRARY = Path(sysconfig.get_path("stdlib")).resolve()
_as_imported: WeakKeyDictionary[ModuleType, Module] = WeakKeyDictionary()


def code_of(names: Collection[str], files: Collection[str]) -> Code:
    """The named modules with what they import, and the files that they read; raises ValueError for
    a file that is not there.

    A module that this process has imported has the text that it was first seen with: that runs.
    """
    modules, versions = reached(names, _module, _version)
    if missing := [name for name in files if not Path(name).is_file()]:
        raise ValueError(
            f"code_files: there is no file {missing[0]!r}, expected those that your code reads, "
            f"named from {Path.cwd()}."
        )
    for name in {*names} - {module.name for module in modules}:
        if (top := name.partition(".")[0]) not in {*versions, *sys.stdlib_module_names}:
            raise ValueError(
                f"{name} has no file, so that nobody could tell what it did, expected a module "
                f"such as {top}.py; what is defined in a notebook is in none."
            )
    read = {name: sha256(Path(name)) for name in files}
    return Code({*names}, {module.name: module for module in modules}, versions, read)


def _module(name: str) -> Module | None:
    """A module that is not installed; None for others and where there is none."""
    spec = _spec(name)
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    path = Path(spec.origin).resolve()
    installed = not {*INSTALLED}.isdisjoint(path.parts) or path.is_relative_to(LIBRARY)
    if installed or not path.is_file():
        return None
    loaded = sys.modules.get(name)
    if loaded is not None and loaded in _as_imported:
        return _as_imported[loaded]
    is_package = spec.submodule_search_locations is not None
    module = Module(name, path.suffix, is_package, path.read_bytes())
    if loaded is not None:
        _as_imported[loaded] = module
    return module


@cache
def _version(top: str) -> str | None:
    """The version of an installed package by the name that it is imported by; None for one of the
    standard library and where there is none.
    """
    if top in sys.stdlib_module_names or _spec(top) is None:
        return None
    with suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(top)
    packages = sorted(importlib.metadata.packages_distributions().get(top, ()))
    versions = [f"{package} {importlib.metadata.version(package)}" for package in packages]
    return ", ".join(versions) or None


def _spec(name: str) -> ModuleSpec | None:
    """Where the import system finds it; no package is imported for the sake of a module in it."""
    top, *inner = name.split(".")
    try:
        spec = importlib.util.find_spec(top) if top else None
    except ValueError:  # of what has no file, as a notebook
        return None
    for depth in range(1, len(inner) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        here = ".".join([top, *inner[:depth]])
        spec = PathFinder.find_spec(here, spec.submodule_search_locations)
    return spec
