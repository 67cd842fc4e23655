"""The command that opens a run in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.runs.run_names import run_named
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.cli.arguments import RunArgument, StoreArgument
from flows.local.mlflow_ui import open_run
from flows.local.prefect_server import open_flow_run
from flows.local.state_dirs import settle
from flows.store import store_at

IDS = {"mlflow": "mlflow_run_ids", "prefect": "prefect_flow_run_ids"}


def open_ui(
    ui: Literal["mlflow", "prefect"], run: RunArgument, /, *, store_uri: StoreArgument = ""
) -> None:
    """Open a run in the MLflow or Prefect UI.

    For example `agentfly open mlflow mine`.
    """
    store = store_at(store_uri)
    record = known_run(store, run := run_named(store, run))
    ids = links_of(store, run).get(IDS[ui])
    if not ids:
        again = continuing(store, run, record)
        raise ValueError(f"{ui} was not reached while {run} was at work. To send the run: {again}")
    places = settle(Path.cwd())
    if ui == "prefect":
        open_flow_run(places, ids[-1])
    else:
        open_run(MlflowStore.choose(places.state, record["site"]["mlflow_tracking_uri"]), ids[-1])
