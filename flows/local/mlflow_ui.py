"""Opening a run in the MLflow UI."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from agentfly_core.config.site import Site
from agentfly_core.system.module_search import finding_ours
from agentfly_core.tracking.mlflow_client import MlflowStore, page
from flows.local.ports import first_free, own
from flows.local.programs import mlflow_server
from flows.local.servers import Servers
from flows.local.sign_in import SignIn
from flows.local.state_dirs import settle

PORTS = range(5000, 5020)
UI = f"http://127.0.0.1:{PORTS.start}"
"""Where `open_run` serves the project's own store, unless the port is taken."""


def mlflow_place(site: Site) -> MlflowStore:
    """Where MLflow keeps the runs of a site."""
    return MlflowStore.choose(settle(Path.cwd()).state, site.mlflow_tracking_uri)


def serving(place: MlflowStore) -> str:
    """The server that shows a place's runs: an MLflow server that keeps them, that of `agentfly
    up`, or another one of this project; empty without any.
    """
    if place.served:
        return place.uri
    if (servers := Servers.running(place.state)) and servers.ready:
        return servers.mlflow
    return next((_at(port) for port in own("mlflow", place.state, place.uri)), "")


def open_run(place: MlflowStore, run_id: str) -> None:
    """Print a run's address in the MLflow UI, and become the server of that UI if none of this
    project is running.

    Raises ValueError where MLflow does not know the run, or cannot be reached, and where no port is
    free.
    """
    if server := serving(place):
        print(_page(place, run_id, server))
        return
    url, sign_in = _at(first_free(PORTS, "MLflow's UI")), SignIn.of(place.state)
    print(_page(place, run_id, url))
    print(f"Sign in as {sign_in.name} with {sign_in.shown(place.state)}", flush=True)
    program = mlflow_server(url, place, sign_in)
    os.execve(sys.executable, program.command, {**os.environ, **finding_ours(), **program.env})


def _at(port: int) -> str:
    return f"http://127.0.0.1:{port}"


def _page(place: MlflowStore, run_id: str, server: str) -> str:
    try:
        return page(place, run_id, server)
    except Exception as error:  # MLflow has errors of many kinds
        raise ValueError(
            f"MLflow at {place.uri} ({place.why}) does not show the run {run_id}: {error}"
        ) from error
