"""Telling MLflow what a run does while it goes on, and afterwards what MLflow was not there to hear."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time
from typing import Any

from agentfly_core.formats import hashing
from agentfly_core.formats.text import fault
from agentfly_core.runs import tracking
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.reporter import RunTeller, Teller
from agentfly_core.runs.run import Lab, Run, links_of, opened
from flows.local.state_dirs import settle

TOLD = "mlflow_told_steps"
LONGEST_TAG = 5000


@contextmanager
def telling(run: Run) -> Iterator[RunTeller]:
    """Somebody to tell what the run does; says at the end what MLflow has not got, and how to send it."""
    tracker = _tracker(run.lab, run.name, run.uid, run.created_ms)
    try:
        yield RunTeller(run, tracker)
    except BaseException as error:  # MLflow hears of whatever it is, which passes on
        tracker.tags({"agentfly.last_failure": fault(error, LONGEST_TAG)[:LONGEST_TAG]})
        tracker.finish("FAILED" if isinstance(error, Exception) else "KILLED", _now())
        raise
    finally:
        if unsent := tracker.close():
            command = continuing(run.store, run.name, run.store.read_json(f"{run.uri}/run.json"))
            print(tracker.missing(unsent, f"`{command}`"))
        elif run.finished:
            run.link(TOLD, str(run.science.steps))


@contextmanager
def telling_stage(lab: Lab, stage: str, policy: str = "") -> Iterator[Teller]:
    """Somebody to tell what a stage did outside any run; an experiment's stage (of a policy) has one MLflow run."""
    uid = hashing.digest([stage, lab.science.digest, policy])
    tracker = _tracker(lab, f"{stage} {policy[:8]}".strip(), uid, _now())
    tracker.tags({"agentfly.stage": stage, "agentfly.policy": policy})
    try:
        yield Teller(lab, tracker)
        tracker.finish("FINISHED", _now())
    finally:
        if unsent := tracker.close():
            print(tracker.missing(unsent, "the same command"))


def tell_again(lab: Lab, name: str, summary: dict[str, Any]) -> dict[str, Any]:
    """Send a finished run's files to MLflow, unless it has had them; returns the summary, now with MLflow's run id.

    Raises Locked while somebody writes the run.
    """
    if str(lab.science.steps) in links_of(lab.store, name).get(TOLD, []):
        return summary
    with opened(lab, name) as run, telling(run) as tell:
        tell.everything()
        summary = {**summary, "mlflow_run_id": tell.mlflow_run_id()}
        run.store.write_json(f"{run.uri}/summary.json", summary)
    return summary


def _tracker(lab: Lab, name: str, uid: str, started_ms: int) -> tracking.Tracker:
    place = tracking.Place.choose(settle(Path.cwd()).state, lab.site.mlflow_tracking_uri)
    return tracking.Tracker(place, lab.experiment, name, uid, started_ms)


def _now() -> int:
    return int(time() * 1000)
