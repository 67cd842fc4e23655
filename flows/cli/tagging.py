"""The command that tags a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.runs.run_tags import change_tags, tags_of
from agentfly_core.store.store import Store
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
    record, tags = known_run(store, run), tags_of(store, run)
    if changes := bool(words or remove):
        tags = change_tags(store, run, words, remove)
    print(f"{run}: {' '.join(tags)}" if tags else f"{run} has no tags.")
    if changes and (reason := _send(store, record, tags)):
        again = continuing(store, run, record)
        print(f"MLflow {reason}. It gets the tags when the run continues or is shown: {again}")


def _send(store: Store, record: RunRecord, tags: Sequence[str]) -> str:
    """Set a run's tags in MLflow; returns why that failed, empty after a success."""
    ids = links_of(store, record["name"]).get("mlflow_run_ids")
    if not ids:
        return "does not have the run yet"
    uri = record["site"]["mlflow_tracking_uri"]
    try:
        place = MlflowStore.choose(settle(Path.cwd()).state, uri)
        set_tags(place, ids[-1], {TAGS: " ".join(tags)})
    except Exception as error:  # the tags are stored, whatever MLflow's client raises
        return f"was not reached ({fault(error, 200)})"
    return ""
