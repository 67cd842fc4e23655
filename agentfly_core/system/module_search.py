"""What child processes find: our modules first, those of the working directory last, and no secret
of the Prefect and MLflow servers.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from importlib.machinery import PathFinder
from pathlib import Path

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
"""The environment variables whose values open the Prefect and MLflow servers."""


def refuse_namesakes(folder: Path) -> None:
    """Raises ValueError for a module or package of `folder`, or found before ours, that has the
    name of one of ours.

    A checkout of this project passes: its packages are ours, whether they or a copy of them are
    imported.
    """
    for name in OURS:
        files: list[Path] = []
        for spec in (PathFinder.find_spec(name, [str(folder)]), importlib.util.find_spec(name)):
            if spec and spec.origin:
                files.append(Path(spec.origin))
            elif spec:  # a folder that is no package, perhaps of modules
                for place in spec.submodule_search_locations or ():
                    files.extend(Path(place).glob("*.py"))
        ours = SOURCES / name / "__init__.py"
        for file in files:
            if file.name != ours.name or file.read_bytes() != ours.read_bytes():
                raise ValueError(
                    f"{file} has the name of a package of AgentFly, {name!r}: it, or AgentFly, "
                    "would be imported in place of the other. Put it into a package of your own, "
                    f"for example my_project/{name}.py, whose functions are named as "
                    f"my_project.{name}:function, or rename it."
                )


@functools.cache
def refuse_hidden(module: str, folder: Path) -> None:
    """Raises ValueError for a module of `folder` in place of which another one of its name would be
    imported; looks once in a process for a module that passes.
    """
    name = module.partition(".")[0]
    own = PathFinder.find_spec(name, [str(folder)])
    if name in OURS or own is None or own.origin is None:
        return
    found = importlib.util.find_spec(name)
    if (
        found
        and (where := found.origin)
        and os.path.realpath(where) != os.path.realpath(own.origin)
    ):
        raise ValueError(
            f"What is imported as {name!r} is not {own.origin} but {where}: what is installed "
            "comes first. Put yours into a package of your own, for example "
            f"my_project/{name}.py, or rename it."
        )


def finding_ours() -> dict[str, str]:
    """The environment variables with which Python, wherever it is started, finds this very
    AgentFly.

    It looks neither into the working directory nor beside a program then.
    """
    before = [] if SOURCES.name in INSTALLED else [str(SOURCES)]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(dict.fromkeys([*before, *given]))}


def for_children() -> dict[str, str]:
    """The environment of a child that has nothing to say to the Prefect and MLflow servers: vLLM,
    the learner, tools and rewards in processes of their own.
    """
    kept = {name: value for name, value in os.environ.items() if name not in OF_SERVERS}
    return kept | finding_ours()
