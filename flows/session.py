"""One sitting of a run: its devices, lock, warm services, live display and MLflow run, opened and
closed together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import time

from prefect.runtime import flow_run

from agentfly_core.formats import hashing
from agentfly_core.formats.json_value import as_json
from agentfly_core.formats.text import fault, keeping_secrets
from agentfly_core.records.run_record import Summary
from agentfly_core.runs import mlflow_client
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.mlflow_reporter import MlflowReporter, RunReporter
from agentfly_core.runs.run import Run, links_of, name_of, opened
from agentfly_core.system.progress import listening
from flows.local.devices import devices
from flows.local.display import Display
from flows.local.prefect_server import crash_abandoned
from flows.local.state_dirs import settle
from flows.triggered import context_of_flow


@dataclass(frozen=True)
class Session:
    """What a flow works with: the run, its reporter and the folder of its logs."""

    run: Run
    reporter: RunReporter
    logs: Path

    @property
    def context(self) -> ExperimentContext:
        """The run's experiment and place."""
        return self.run.context


@contextmanager
def session(
    experiment: str, run: str, overrides: list[str], new: bool, site: str, store: str
) -> Iterator[Session]:
    """Open a run for writing, on devices of its own, and close everything at the end."""
    context = context_of_flow(experiment, overrides, site, store)
    with devices(context.site, context.site.gpus, f"the run {name_of(context, run, new)}"):
        name = name_of(context, run, new)  # the next free one may be another after the wait
        logs = settle(Path.cwd()).state / "logs" / name
        with keeping_secrets(), opened(context, name) as mine:
            current, earlier = str(flow_run.id), mine.links("prefect_flow_run_ids")
            crash_abandoned(old for old in earlier if old != current)  # this one has the lock
            mine.link("prefect_flow_run_ids", current)
            mine.remember_sandbox()
            with (
                reporting(mine) as reporter,
                Display(name, mine.science.steps) as display,
                listening(display),
            ):
                yield Session(mine, reporter, logs)


TOLD = "mlflow_told_steps"
LONGEST_TAG = 5000


@contextmanager
def reporting(run: Run) -> Iterator[RunReporter]:
    """Reports to MLflow what a run does; prints at the end what MLflow lacks and how to send it."""
    tracker = _tracker(run.context, run.name, run.uid, run.created_ms)
    command = continuing(run.store, run.name, run.record)
    try:
        yield RunReporter(run, tracker)
    except BaseException as error:  # whatever it is, MLflow gets it, and it is raised again
        tracker.tags({"agentfly.last_failure": fault(error, LONGEST_TAG)[:LONGEST_TAG]})
        tracker.finish("FAILED" if isinstance(error, Exception) else "KILLED", _now())
        raise
    finally:
        if unsent := tracker.close():
            print(tracker.missing(unsent, f"`{command}`"))
        elif run.finished:
            run.link(TOLD, str(run.science.steps))


@contextmanager
def reporting_stage(
    context: ExperimentContext, stage: str, policy: str = ""
) -> Iterator[MlflowReporter]:
    """Reports a stage outside any run; an experiment's stage (of a policy) has one MLflow run."""
    uid = hashing.digest([stage, context.science.digest, policy])
    tracker = _tracker(context, f"{stage} {policy[:8]}".strip(), uid, _now())
    tracker.tags({"agentfly.stage": stage, "agentfly.policy": policy})
    try:
        yield MlflowReporter(context, tracker)
        tracker.finish("FINISHED", _now())
    finally:
        if unsent := tracker.close():
            print(tracker.missing(unsent, "the same command"))


def report_again(context: ExperimentContext, name: str, summary: Summary) -> Summary:
    """Send a finished run's files to MLflow, unless it has had them; returns the summary, now with
    MLflow's run id.

    Raises Locked while somebody writes the run.
    """
    if str(context.science.steps) in links_of(context.store, name).get(TOLD, []):
        return summary
    with opened(context, name) as run, reporting(run) as reporter:
        reporter.everything()
        summary = {**summary, "mlflow_run_id": reporter.mlflow_run_id()}
        run.store.write_json(run.layout.summary, as_json(summary))
    return summary


def _tracker(
    context: ExperimentContext, name: str, uid: str, started_ms: int
) -> mlflow_client.Tracker:
    place = mlflow_client.Place.choose(settle(Path.cwd()).state, context.site.mlflow_tracking_uri)
    return mlflow_client.Tracker(place, context.experiment, name, uid, started_ms)


def _now() -> int:
    return int(time() * 1000)
