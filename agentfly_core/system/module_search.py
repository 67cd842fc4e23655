"""The module search path, and the environment variables of child processes."""

import importlib.util
import os
import sys
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
    """Import the packages of AgentFly from their own folder.

    Packages with the same names in other folders are ignored.
    """
    for name in OURS:
        if name not in sys.modules:
            package = SOURCES / name
            spec = importlib.util.spec_from_file_location(
                name, package / "__init__.py", submodule_search_locations=[str(package)]
            )
            assert spec and spec.loader, f"{package} is not a package"
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)


def importable_here() -> None:
    """Make modules of the working directory importable.

    The working directory is added at the end of the search path. If another folder of the search
    path has a module with the same name, the module in the other folder is imported.
    """
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.append(here)  # added last, because libraries are imported from elsewhere


def finding_ours() -> dict[str, str]:
    """Return environment variables with which a Python process imports this copy of AgentFly in any
    working directory.
    """
    before = [] if SOURCES.name in INSTALLED else [str(SOURCES)]
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return {"PYTHONSAFEPATH": "1", "PYTHONPATH": os.pathsep.join(dict.fromkeys([*before, *given]))}


def for_children() -> dict[str, str]:
    """Return the environment variables for child processes.

    The secrets of the Prefect and MLflow servers are left out.
    """
    kept = {name: value for name, value in environment().items() if name not in OF_SERVERS}
    return kept | finding_ours()


def require_package(requirement: str, extra: str) -> None:
    """Raise ValueError if a package is missing: `require_package("math-verify==0.9.0", "math")`.

    `extra` is the extra of AgentFly to which the package belongs, for the error message.
    """
    name = requirement.partition("==")[0]
    if importlib.util.find_spec(name.replace("-", "_")) is None:
        raise ValueError(
            f"The package {name} is missing. Run `pip install {requirement}`; the package belongs "
            f"to the extra `{extra}` of AgentFly."
        )
