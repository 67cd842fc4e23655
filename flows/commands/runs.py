"""Commands about runs: all of a store, and one of them in the MLflow or the Prefect UI."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from rich.console import Console

from agentfly_core.runs.listing import continuing, listed, view
from agentfly_core.runs.mlflow_client import Place
from agentfly_core.runs.run import links_of, record_of
from flows.commands.arguments import RUN, STORE, Commands
from flows.context import store_at
from flows.local.mlflow_ui import open_run
from flows.local.prefect_server import open_flow_run
from flows.local.state_dirs import settle


def add_listing(commands: Commands) -> None:
    """The command that lists runs."""
    listing = commands.add(
        "list", list_runs, "all runs: state, owner, last step, and the command that continues each"
    )
    listing.add_argument("--store", default="", help=STORE)


def add_opening(commands: Commands) -> None:
    """The command that opens a run in a browser."""
    opening = commands.add(
        "open",
        open_ui,
        "open a run in the MLflow or the Prefect UI; serves it until Ctrl-C where no server runs",
    )
    opening.add_argument("ui", choices=("mlflow", "prefect"))
    opening.add_argument("run", help=RUN)
    opening.add_argument("--store", default="", help=STORE)


def list_runs(arguments: Namespace) -> None:
    """All runs of a store."""
    store = store_at(arguments.store)
    Console().print(view(listed(store), store), soft_wrap=True)


def open_ui(arguments: Namespace) -> None:
    """Open a run in the MLflow or Prefect UI; serves it until interrupted where no server runs."""
    store, name = store_at(arguments.store), arguments.run
    record = record_of(store, name)
    if record is None:
        raise ValueError(f"There is no run {name!r} in {store.uri}; `agentfly list` shows all.")
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
        open_run(Place.choose(places.state, record["site"]["mlflow_tracking_uri"]), ids[-1])
