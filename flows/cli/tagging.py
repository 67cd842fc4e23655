"""The command that tags a run."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.runs.run_tags import change_tags, remember_told, tags_of
from agentfly_core.system.formats.text import fault
from agentfly_core.tracking.mlflow_client import TAGS, MlflowStore, set_tags
from flows.cli.arguments import RUN, STORE, Commands
from flows.local.state_dirs import settle
from flows.store import store_at


def add(commands: Commands) -> None:
    """Add the command."""
    tagging = commands.add("tag", tag)
    tagging.add_argument("run", help=RUN)
    tagging.add_argument("words", metavar="WORD", nargs="*", help="such as baseline")
    removed = "a tag to take off; may be given again"
    tagging.add_argument("--remove", metavar="WORD", action="append", default=[], help=removed)
    tagging.add_argument("--store", default="", help=STORE)


def tag(arguments: Namespace) -> None:
    """Change the tags of a run, at work or not, and in MLflow if its server answers."""
    store, name = store_at(arguments.store), arguments.run
    record = known_run(store, name)
    tags = tags_of(store, name)
    if arguments.words or arguments.remove:
        tags = change_tags(store, name, arguments.words, arguments.remove)
    print(f"{name}: {tags}" if tags.words else f"{name} has no tags.")
    ids = links_of(store, name).get("mlflow_run_ids")
    if tags.in_mlflow:
        return
    try:
        if ids:
            place = MlflowStore.choose(
                settle(Path.cwd()).state, record["site"]["mlflow_tracking_uri"]
            )
            set_tags(place, ids[-1], {TAGS: str(tags)})
            remember_told(store, name, tags)
            return
        why = "which has not heard of the run yet"
    except Exception as error:  # whatever keeps MLflow from answering, the tags are stored
        why = f"which was not reached ({fault(error, 200)})"
    again = continuing(store, name, record)
    print(f"MLflow, {why}, gets the tags when the run continues or is shown: {again}")
