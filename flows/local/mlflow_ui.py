"""Opening a run in the MLflow UI."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx

from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.mlflow_client import Place, page
from agentfly_core.system.module_search import finding_ours
from flows.local.ports import is_free
from flows.local.servers import Servers
from flows.local.state_dirs import settle

PORTS = range(5000, 5020)
UI = f"http://127.0.0.1:{PORTS.start}"
"""Where `open_run` serves the project's own store, unless the port is taken."""


def mlflow_place(context: ExperimentContext) -> Place:
    """Where MLflow keeps an experiment's runs."""
    return Place.choose(settle(Path.cwd()).state, context.site.mlflow_tracking_uri)


def serving(place: Place) -> str:
    """The server that shows a place's runs: its own, or that of `agentfly up`; else empty."""
    if place.served:
        return place.uri
    servers = Servers.running(place.state)
    return servers.mlflow if servers and servers.ready else ""


def open_run(place: Place, run_id: str) -> None:
    """Print a run's address in the MLflow UI, and become the server of that UI where none is
    running.

    Raises ValueError where MLflow does not know the run, or cannot be reached, and where no port is
    free.
    """
    if server := serving(place):
        print(_page(place, run_id, server))
        return
    port = next((port for port in PORTS if is_free(port) or _shows(port, run_id)), None)
    if port is None:
        raise ValueError(
            f"Other programs use all ports from {PORTS.start} to {PORTS.stop - 1}, one of which "
            "MLflow's UI needs: end one of them."
        )
    print(_page(place, run_id, f"http://127.0.0.1:{port}"), flush=True)
    if is_free(port):
        env = {**os.environ, **finding_ours(), "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        artifacts = f"{place.state}/mlartifacts"
        words = ["--backend-store-uri", place.uri, "--artifacts-destination", artifacts]
        words += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        os.execve(sys.executable, [sys.executable, "-m", "mlflow", "server", *words], env)


def _page(place: Place, run_id: str, server: str) -> str:
    try:
        return page(place, run_id, server)
    except Exception as error:  # MLflow has errors of many kinds
        raise ValueError(
            f"MLflow at {place.uri} ({place.why}) does not show the run {run_id}: {error}"
        ) from error


def _shows(port: int, run_id: str) -> bool:
    url = f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/get"
    try:
        return httpx.get(url, params={"run_id": run_id}, timeout=5).status_code == 200
    except httpx.HTTPError:
        return False
