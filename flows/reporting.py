"""Reports to MLflow of a run and of single stages, while they are at work and afterwards.

It imports no Prefect: the command line uses it before Prefect's environment is set.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import time

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import Run, links_of, opened
from agentfly_core.runs.run_tags import remember_told, tags_of
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.json_value import as_json
from agentfly_core.system.formats.text import fault
from agentfly_core.tracking.mlflow_client import Tracker
from agentfly_core.tracking.mlflow_reporter import MlflowReporter, RunReporter
from flows.local.mlflow_ui import mlflow_place
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

REPORTED = "mlflow_reported_steps"
FLOW_RUN_TAG = "agentfly.prefect_flow_run"
LONGEST_TAG = 5000


@contextmanager
def reporting(run: Run) -> Iterator[RunReporter]:
    """Reports to MLflow what a run does; prints at the end what MLflow lacks and how to send it."""
    command = continuing(run.store, run.name, run.record)
    place, experiment = mlflow_place(run.experiment.site), run.experiment.name
    tracker = Tracker(place, experiment, run.name, run.uid, run.created_ms)
    reporter = RunReporter(run, tracker)
    if flow_runs := run.links("prefect_flow_run_ids"):
        tracker.tags({FLOW_RUN_TAG: flow_run_page(settle(Path.cwd()).api, flow_runs[-1])})
    try:
        yield reporter
    except BaseException as error:  # whatever it is, MLflow gets it, and it is raised again
        tracker.tags({"agentfly.last_failure": fault(error, LONGEST_TAG)[:LONGEST_TAG]})
        tracker.finish("FAILED" if isinstance(error, Exception) else "KILLED", _now())
        raise
    finally:
        if unsent := tracker.close():
            print(tracker.missing(unsent, f"`{command}`"))
        else:
            remember_told(run.store, run.name, reporter.tags)
            if run.finished:
                run.link(REPORTED, str(run.settings.steps))


@contextmanager
def reporting_stage(
    experiment: Experiment, stage: str, policy: str = ""
) -> Iterator[MlflowReporter]:
    """Reports a stage outside any run; an experiment's stage (of a policy) has one MLflow run."""
    uid = hashing.digest([stage, experiment.settings.digest, policy])
    place, name = mlflow_place(experiment.site), f"{stage} {policy[:8]}".strip()
    tracker = Tracker(place, experiment.name, name, uid, _now())
    tracker.tags({"agentfly.stage": stage, "agentfly.policy": policy})
    try:
        yield MlflowReporter(experiment, tracker)
        tracker.finish("FINISHED", _now())
    finally:
        if unsent := tracker.close():
            print(tracker.missing(unsent, "the same command"))


def report_again(experiment: Experiment, name: str, summary: Summary) -> Summary:
    """Send a finished run's files and tags to MLflow, unless it has had them; returns the summary,
    now with MLflow's run id.

    Raises Locked while a process writes the run.
    """
    reported = str(experiment.settings.steps) in links_of(experiment.store, name).get(REPORTED, [])
    if reported and tags_of(experiment.store, name).in_mlflow:
        return summary
    with opened(experiment, name) as run, reporting(run) as reporter:
        reporter.everything()
        summary = {**summary, "mlflow_run_id": reporter.mlflow_run_id()}
        run.store.write_json(run.layout.summary, as_json(summary))
    return summary


def _now() -> int:
    return int(time() * 1000)
