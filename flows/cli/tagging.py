"""The command that tags a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.runs.run_tags import change_tags, remember_told, tags_of
from agentfly_core.system.formats.text import fault
from agentfly_core.tracking.mlflow_client import TAGS, MlflowStore, set_tags
from flows.cli.arguments import RunArgument, StoreArgument
from flows.local.state_dirs import settle
from flows.store import store_at


def tag(
    run: RunArgument,
    /,
    *words: Annotated[str, Parameter(name="WORD")],
    remove: tuple[str, ...] = (),
    store_uri: StoreArgument = "",
) -> None:
    """Put words on a run, to find it again.

    For example `agentfly tag mine baseline`.

    Args:
        words: such as baseline
        remove: a tag to take off; may be given again
    """
    store = store_at(store_uri)
    record = known_run(store, run)
    tags = tags_of(store, run)
    if words or remove:
        tags = change_tags(store, run, words, remove)
    print(f"{run}: {tags}" if tags.words else f"{run} has no tags.")
    ids = links_of(store, run).get("mlflow_run_ids")
    if tags.in_mlflow:
        return
    try:
        if ids:
            place = MlflowStore.choose(
                settle(Path.cwd()).state, record["site"]["mlflow_tracking_uri"]
            )
            set_tags(place, ids[-1], {TAGS: str(tags)})
            remember_told(store, run, tags)
            return
        why = "which does not have the run yet"
    except Exception as error:  # whatever keeps MLflow from answering, the tags are stored
        why = f"which was not reached ({fault(error, 200)})"
    again = continuing(store, run, record)
    print(f"MLflow, {why}, gets the tags when the run continues or is shown: {again}")
