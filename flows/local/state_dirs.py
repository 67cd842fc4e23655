"""The folders of a project's state: Prefect's database, MLflow's store and the logs.

Call `settle` before the first import of prefect, because prefect reads the environment only once.
"""

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
class Places:
    """The folder of a project's state, and the address of the project's Prefect API.

    `state` is the absolute path of the folder. `api` is the address, or "" if a command must start
    a server. `prefect` is a text for the user about the location of Prefect's data, such as
    "/home/user/shop/.agentfly/prefect (the project's own)".
    """

    state: Path
    api: str
    prefect: str


def state_of(project: Path = Path()) -> Path:
    """Return the folder of a project's state, without creating it.

    Also set environment variables for this process, unless they are already set. They switch off
    the telemetry of Prefect, DVC, MLflow and others, and limit the spinning of OpenMP threads.
    """
    for name, value in {**NO_TELEMETRY, **WAITING}.items():
        os.environ.setdefault(name, value)
    return main_workspace(project) / STATE


def settle(project: Path = Path()) -> Places:
    """Create the folders of a project's state, and set environment variables for Prefect.

    The environment or the active Prefect profile may set Prefect's API, home folder or database.
    Prefect then uses this setting. Otherwise, Prefect uses the project's server if the server is
    running. Without a running server, Prefect uses the database in the project's state.
    """
    state = state_of(project)
    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    (state / "logs").mkdir(exist_ok=True)
    home = state / "prefect"
    where, why = _chosen()
    if where and where != str(home):
        return Places(state, where if where.startswith("http") else "", f"{where} ({why})")
    home.mkdir(exist_ok=True)
    os.environ["PREFECT_HOME"] = str(home)
    # the profiles of the user are used, although PREFECT_HOME is a folder of the project
    profiles = str(Path("~/.prefect/profiles.toml").expanduser())
    os.environ.setdefault("PREFECT_PROFILES_PATH", profiles)
    os.environ.setdefault("PREFECT_SERVER_MEMO_STORE_PATH", str(home / "memo_store.toml"))
    os.environ.setdefault("PREFECT_LOCAL_STORAGE_PATH", str(home / "storage"))
    if client := own_api(state):
        os.environ |= client
        url = client["PREFECT_API_URL"]
        return Places(state, url, f"{url} (this project's own server)")
    return Places(state, "", f"{home} (the project's own)")


def main_workspace(folder: Path = Path()) -> Path:
    """Return the main folder of the project in `folder`.

    This is usually `folder` itself. DVC runs some experiments in temporary copies of a project, for
    example with `dvc exp run --temp`. For such a copy, return the project's original folder,
    because the copy must use the original runs.
    """
    folder = folder.resolve()
    for above in folder.parents:
        if above.parts[-3:] == TRIALS:
            return above.parents[2]
    return folder


def _chosen() -> tuple[str, str]:
    """Return the value and the name of the user's setting for Prefect's API, folder or database.

    The setting is in the environment or in the active Prefect profile. If the setting is missing,
    both texts are empty.
    """
    path = Path(os.environ.get("PREFECT_HOME", "~/.prefect"), "profiles.toml").expanduser()
    try:
        profiles = tomllib.loads(path.read_bytes().decode()) if path.is_file() else {}
    except ValueError as error:
        raise ValueError(f"Prefect's {path} is invalid TOML: {error}. Fix or remove it.") from None
    name = os.environ.get("PREFECT_PROFILE", profiles.get("active", ""))
    profile: Mapping[str, str] = profiles.get("profiles", {}).get(name, {})
    for key in ELSEWHERE:
        if place := os.environ.get(key) or profile.get(key):
            return place, key
    return "", ""
