"""Where the project's state lies: Prefect's database, MLflow's store and the logs, and why there.

`settle` comes before the first import of prefect, which reads its settings from the environment
once.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from agentfly_core.system.hardware import WAITING
from flows.local.own_servers import own_api

STATE = ".agentfly"
TRIALS = (".dvc", "tmp", "exps")
NO_TELEMETRY = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    "DO_NOT_TRACK": "1",
    "DVC_NO_ANALYTICS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
ELSEWHERE = ("PREFECT_API_URL", "PREFECT_HOME", "PREFECT_API_DATABASE_CONNECTION_URL")


@dataclass(frozen=True, slots=True)
class StateDir:
    """Where Prefect's state is kept: `StateDir("/home/user/shop/.agentfly/prefect", "the project's
    own")`.
    """

    where: str
    why: str

    def __str__(self) -> str:
        return f"Prefect: {self.where} ({self.why})"


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a project, all absolute; `api` is the Prefect API that was chosen, or empty."""

    state: Path
    api: str
    prefect: StateDir


def state_of(project: Path) -> Path:
    """The folder of a project's state, which is not made; no telemetry."""
    for name, value in {**NO_TELEMETRY, **WAITING}.items():
        os.environ.setdefault(name, value)
    return main_workspace(project) / STATE


def settle(project: Path) -> Places:
    """Point Prefect at the project's running server, or else at its state, unless the environment
    or the active profile did; make its folders.
    """
    state = state_of(project)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    (state / "logs").mkdir(exist_ok=True)
    home = state / "prefect"
    if (place := _chosen()) and place.where != str(home):
        return Places(state, place.where if place.where.startswith("http") else "", place)
    home.mkdir(exist_ok=True)
    os.environ["PREFECT_HOME"] = str(home)
    os.environ.setdefault(
        "PREFECT_PROFILES_PATH", str(Path("~/.prefect/profiles.toml").expanduser())
    )
    os.environ.setdefault("PREFECT_SERVER_MEMO_STORE_PATH", str(home / "memo_store.toml"))
    os.environ.setdefault("PREFECT_LOCAL_STORAGE_PATH", str(home / "storage"))
    if client := own_api(state):
        os.environ |= client
        url = client["PREFECT_API_URL"]
        return Places(state, url, StateDir(url, "this project's own server"))
    return Places(state, "", StateDir(str(home), "the project's own"))


def main_workspace(folder: Path) -> Path:
    """The folder itself; of a workspace in which DVC tries an experiment (`dvc exp run --temp`, or
    one from its queue) the one it was copied from, whose runs it finds and adds to.
    """
    folder = folder.resolve()
    for above in folder.parents:
        if above.parts[-3:] == TRIALS:
            return above.parents[2]
    return folder


def _chosen() -> StateDir | None:
    """Prefect's state as the environment or the active profile places it; None by neither."""
    path = Path(os.environ.get("PREFECT_HOME", "~/.prefect"), "profiles.toml").expanduser()
    try:
        profiles = tomllib.loads(path.read_bytes().decode()) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(
            f"{path}, with Prefect's profiles, is no valid TOML: {error}. Mend or remove it."
        ) from None

    name = os.environ.get("PREFECT_PROFILE", profiles.get("active", ""))
    profile: Mapping[str, str] = profiles.get("profiles", {}).get(name, {})
    for key in ELSEWHERE:
        if key in os.environ:
            return StateDir(os.environ[key], f"{key} is set")
        if key in profile:
            return StateDir(profile[key], f"{key} in the Prefect profile {name!r}")
    return None
