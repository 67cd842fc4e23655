"""The commands that start, show and end a project's servers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from agentfly_core.config import loading
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.serving import LOG, show_status
from flows.local.state_dirs import settle
from flows.local.up import detached, end, require_startable, serve


def up(
    *,
    detach: bool = False,
    status: bool = False,
    prefect_port: int = 4200,
    mlflow_port: int = 5000,
) -> int:
    """Serve Prefect and MLflow, and run triggered flows.

    For example `agentfly up --detach`.

    Args:
        detach: return once all works, and keep it running
        status: print what runs; exits with 0 if all works
    """
    places, ports = settle(Path.cwd()), (prefect_port, mlflow_port)
    place = MlflowStore.choose(places.state, loading.site("local").mlflow_tracking_uri)
    if status:
        return show_status(place)
    places.state.chmod(0o700)
    require_startable(places, ports[:1] if place.served else ports)
    with suppress(FileNotFoundError):
        (places.state / LOG).replace(places.state / f"{LOG}.1")
    return detached(place, ports) if detach else serve(place, ports)


def down() -> None:
    """End what `agentfly up` started.

    For example `agentfly down`.
    """
    state = settle(Path.cwd()).state
    print("Ended." if end(state) else f"Nothing of `agentfly up` runs here ({state}).")
