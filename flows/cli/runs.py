"""Commands about single runs: list, tag and open them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from agentfly_core.reports.show import run_choice
from agentfly_core.runs.listing import continuing, listed, view
from agentfly_core.runs.run import known_run, links_of
from agentfly_core.runs.run_names import run_named
from agentfly_core.runs.run_tags import change_tags, tags_of
from agentfly_core.system.formats.text import counted, fault
from agentfly_core.tracking.mlflow_client import TAGS, MlflowStore, set_tags
from flows.cli.arguments import AsJson, RunName, StoreUri
from flows.local.mlflow_ui import open_run
from flows.local.prefect_server import open_flow_run
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole, print_json
from flows.store import store_at

IDS = {"mlflow": "mlflow_run_ids", "prefect": "prefect_flow_run_ids"}


def list_runs(
    *,
    sort: run_choice.Sorting = "name",
    filters: Annotated[tuple[str, ...], Parameter(name="--filter")] = (),
    store_uri: StoreUri = "",
    as_json: AsJson = False,
) -> None:
    """List runs with the command that continues each.

    For example `agentfly list --sort success --filter experiment=quickstart`.

    Args:
        sort: by name, or the newest (time), best (success) or furthest (step) first
        filters: only runs with this text in their line, or experiment=NAME, state=stopped,
            tag=WORD, update.learning_rate=3e-4; may be given again, and all must hold
    """
    store = store_at(store_uri)
    everything = listed(store)
    runs = run_choice.ordered(run_choice.only(everything, filters), sort)
    if as_json:
        print_json(run_choice.as_json(runs))
    elif everything and not runs:
        print(f"None of {counted(len(everything), 'run')} matches {' and '.join(filters)}.")
    else:
        VisibleConsole().print(view(runs, store), soft_wrap=True)


def tag(
    run: RunName,
    /,
    *words: Annotated[str, Parameter(name="WORD")],
    remove: tuple[str, ...] = (),
    store_uri: StoreUri = "",
) -> None:
    """Put words on a run, to find it again.

    For example `agentfly tag mine baseline`.

    Args:
        words: such as baseline
        remove: a tag to take off; may be given again
    """
    store = store_at(store_uri)
    record, tags = known_run(store, run), tags_of(store, run)
    if words or remove:
        tags = change_tags(store, run, words, remove)
    print(f"{run}: {' '.join(tags)}" if tags else f"{run} has no tags.")
    if not (words or remove):
        return
    reason = "does not have the run yet"
    if ids := links_of(store, run).get(IDS["mlflow"]):
        uri = record["site"]["mlflow_tracking_uri"]
        try:
            place = MlflowStore.choose(settle(Path.cwd()).state, uri)
            set_tags(place, ids[-1], {TAGS: " ".join(tags)})
            return
        except Exception as error:  # the tags are stored, whatever MLflow's client raises
            reason = f"was not reached ({fault(error, 200)})"
    again = continuing(store, run, record)
    print(f"MLflow {reason}. It gets the tags when the run continues or is shown: {again}")


def open_ui(ui: Literal["mlflow", "prefect"], run: RunName, /, *, store_uri: StoreUri = "") -> None:
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
