"""Commands about runs: all of a store, and one of them in the MLflow or the Prefect UI."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from agentfly_core.reports.show import run_choice
from agentfly_core.reports.show.run_choice import SORTINGS
from agentfly_core.runs.listing import continuing, listed, view
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.runs.run_tags import change_tags, remember_told, tags_of
from agentfly_core.system.formats.text import counted, fault
from agentfly_core.tracking.mlflow_client import TAGS, Place, set_tags
from flows.cli.arguments import RUN, STORE, Commands
from flows.context import store_at
from flows.local.mlflow_ui import open_run
from flows.local.prefect_server import open_flow_run
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole, print_json

SORT = "by name, or the newest (time), best (success) or furthest (step) first (default: name)"
FILTER = (
    "only runs with this text in their line, or experiment=NAME, state=stopped, tag=WORD, "
    "update.learning_rate=3e-4; all that are given must hold"
)


def add(commands: Commands) -> None:
    """Add the commands about runs."""
    _add_listing(commands)
    _add_opening(commands)


def _add_listing(commands: Commands) -> None:
    """The commands that list runs and tag them."""
    listing = commands.add("list", list_runs)
    listing.add_argument("--sort", choices=SORTINGS, default="name", help=SORT)
    listing.add_argument("--filter", action="append", default=[], metavar="TEXT", help=FILTER)
    listing.add_argument("--json", action="store_true", help="one JSON document")
    listing.add_argument("--store", default="", help=STORE)
    tagging = commands.add("tag", tag)
    tagging.add_argument("run", help=RUN)
    tagging.add_argument("words", metavar="WORD", nargs="*", help="such as baseline")
    removed = "a tag to take off; may be given again"
    tagging.add_argument("--remove", metavar="WORD", action="append", default=[], help=removed)
    tagging.add_argument("--store", default="", help=STORE)


def _add_opening(commands: Commands) -> None:
    """The command that opens a run in a browser."""
    opening = commands.add("open", open_ui)
    opening.add_argument("ui", choices=("mlflow", "prefect"))
    opening.add_argument("run", help=RUN)
    opening.add_argument("--store", default="", help=STORE)


def list_runs(arguments: Namespace) -> None:
    """All runs of a store."""
    store = store_at(arguments.store)
    everything = listed(store)
    runs = run_choice.ordered(run_choice.only(everything, arguments.filter), arguments.sort)
    if arguments.json:
        print_json(run_choice.as_json(runs))
    elif everything and not runs:
        wanted = " and ".join(arguments.filter)
        print(f"None of {counted(len(everything), 'run')} matches {wanted}.")
    else:
        VisibleConsole().print(view(runs, store), soft_wrap=True)


def tag(arguments: Namespace) -> None:
    """Change the tags of a run, at work or not, and in MLflow if its server answers."""
    store, name = store_at(arguments.store), arguments.run
    record = known_run(store, name)
    tags = tags_of(store, name)
    if arguments.words or arguments.remove:
        tags = change_tags(store, name, arguments.words, arguments.remove)
    print(f"{name}: {tags}" if tags.words else f"{name} has no tags.")
    ids = links_of(store, name).get("mlflow_run_ids")
    if tags.told:
        return
    try:
        if ids:
            place = Place.choose(settle(Path.cwd()).state, record["site"]["mlflow_tracking_uri"])
            set_tags(place, ids[-1], {TAGS: str(tags)})
            remember_told(store, name, tags)
            return
        why = "which has not heard of the run yet"
    except Exception as error:  # whatever keeps MLflow from answering, the tags are stored
        why = f"which was not reached ({fault(error, 200)})"
    again = continuing(store, name, record)
    print(f"MLflow, {why}, gets the tags when the run continues or is shown: {again}")


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
        open_run(Place.choose(places.state, record["site"]["mlflow_tracking_uri"]), ids[-1])
