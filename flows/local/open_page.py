"""A run's page in the UI of MLflow or Prefect."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.store.store import Store
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.mlflow_ui import open_run
from flows.local.prefect_server import open_flow_run
from flows.local.state_dirs import settle

Ui = Literal["mlflow", "prefect"]
IDS = {"mlflow": "mlflow_run_ids", "prefect": "prefect_flow_run_ids"}


def open_page(store: Store, run: str, ui: Ui) -> None:
    """Print a run's address, and become the server of its UI if none runs.

    Raises ValueError for a run that the UI does not have.
    """
    record = known_run(store, run)
    ids = links_of(store, run).get(IDS[ui])
    if not ids:
        again = continuing(store, run, record)
        raise ValueError(f"{ui} was not reached while {run} was at work. To send the run: {again}")
    places = settle(Path.cwd())
    if ui == "prefect":
        open_flow_run(places, ids[-1])
    else:
        open_run(MlflowStore.choose(places.state, record["site"]["mlflow_tracking_uri"]), ids[-1])
