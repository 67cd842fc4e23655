"""Module search and environment of child processes, without secrets of the servers."""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from agentfly_core.system.formats.text import environment

OURS = ("agentfly_core", "flows", "tasks")
SOURCES = Path(__file__).resolve().parents[2]
INSTALLED = ("site-packages", "dist-packages")
OF_SERVERS = {
    "PREFECT_API_AUTH_STRING",
    "PREFECT_API_KEY",
    "PREFECT_SERVER_API_AUTH_STRING",
    "MLFLOW_AUTH_ADMIN_PASSWORD",
    "MLFLOW_FLASK_SERVER_SECRET_KEY",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
}
"""Environment variables with secrets of the Prefect and MLflow servers."""


def import_ours() -> None:
    """Import AgentFly's packages from their own folder, even if others have the same names."""
    for name in OURS:
        if name not in sys.modules:
            package = SOURCES / name
            spec = importlib.util.spec_from_file_location(
                name, package / "__init__.py", submodule_search_locations=[str(package)]
            )
            assert spec and spec.loader, f"{package} is no package"
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)


@functools.cache
def refuse_hidden(module: str, folder: Path) -> None:
    """Raise ValueError for a module of `folder` that is hidden by another one of its name."""
    name = module.partition(".")[0]
    if name in OURS:
        _refuse_namesake(module, folder)
        return
    own = PathFinder.find_spec(name, [str(folder)])
    if own is None or own.origin is None:
        return
    spec = importlib.util.find_spec(name)
    if spec and (where := spec.origin) and os.path.realpath(where) != os.path.realpath(own.origin):
        raise ValueError(
            f"The module {name!r} is {where} and not {own.origin}: installed modules come first. "
            f"Move yours into a package such as my_project/{name}.py, or rename it."
        )


def _refuse_namesake(module: str, folder: Path) -> None:
    """Raise ValueError for a module of `folder` in a package with the name of ours."""
    parts = module.split(".")
    own, ours = _module_file(folder, parts), _module_file(SOURCES, parts)
    if own and (ours is None or (len(parts) == 1 and own.read_bytes() != ours.read_bytes())):
        raise ValueError(
            f"{own} is hidden by AgentFly's package {parts[0]!r}: rename its folder, or move it to "
            f"my_project/{own.name} and use my_project.{own.stem}."
        )


def _module_file(folder: Path, parts: list[str]) -> Path | None:
    """The file of a module below a folder, if there is one."""
    path = folder.joinpath(*parts)
    files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def finding_ours() -> dict[str, str]:
    """Environment variables with which Python finds this AgentFly, in any working directory."""
    before = [] if SOURCES.name in INSTALLED else [str(SOURCES)]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(dict.fromkeys([*before, *given]))}


def for_children() -> dict[str, str]:
    """The environment of children without access to the Prefect and MLflow servers."""
    kept = {name: value for name, value in environment().items() if name not in OF_SERVERS}
    return kept | finding_ours()
