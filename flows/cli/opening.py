"""The command that opens a run in a browser."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.cli.arguments import RUN, STORE, Commands
from flows.local.mlflow_ui import open_run
from flows.local.prefect_server import open_flow_run
from flows.local.state_dirs import settle
from flows.store import store_at


def add(commands: Commands) -> None:
    """Add the command."""
    opening = commands.add("open", open_ui)
    opening.add_argument("ui", choices=("mlflow", "prefect"))
    opening.add_argument("run", help=RUN)
    opening.add_argument("--store", default="", help=STORE)


def open_ui(arguments: Namespace) -> None:
    """Open a run in the MLflow or Prefect UI; serves it until interrupted where no server runs."""
    store, name = store_at(arguments.store), arguments.run
    record = known_run(store, name)
    ids = links_of(store, name).get(
        {"mlflow": "mlflow_run_ids", "prefect": "prefect_flow_run_ids"}[arguments.ui]
    )
    if not ids:
        again = continuing(store, name, record)
        raise ValueError(
            f"{arguments.ui} was not reached while {name} was at work. This tells it of the run: "
            f"{again}"
        )
    places = settle(Path.cwd())
    if arguments.ui == "prefect":
        open_flow_run(places, ids[-1])
    else:
        open_run(MlflowStore.choose(places.state, record["site"]["mlflow_tracking_uri"]), ids[-1])
