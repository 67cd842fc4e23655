"""Reports of runs and stages to MLflow.

It imports no Prefect: the command line uses it before Prefect's environment is set.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import time

from agentfly_core.config.evaluation import Evaluate
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import Run, known_run, opened
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.store.store import Store
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault
from agentfly_core.tracking.background import Background, MlflowCall
from agentfly_core.tracking.mlflow_client import MlflowStore
from agentfly_core.tracking.mlflow_run import MlflowRun
from agentfly_core.tracking.sync import send_settings, sync
from flows.local.mlflow_ui import mlflow_place
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

logger = logging.getLogger(__name__)
FLOW_RUN_TAG = "agentfly.prefect_flow_run"


@contextmanager
def reporting(run: Run) -> Iterator[Callable[[Run], None]]:
    """A function that syncs a run in a thread; the last sync ends with the block.

    Prints what MLflow lacks then. Raises Damaged for a finished run's lost files.
    """
    place, current, failure = mlflow_place(run.experiment.site), run, ""
    status, command = "", continuing(run.store, run.name, run.record)
    naming = (run.experiment.name, run.name, run.uid, run.created_ms)
    background = Background(place, partial(MlflowRun, place, *naming))
    flow_runs, synced = run.links("prefect_flow_run_ids"), dict[str, JSON]()
    page = flow_run_page(settle(Path.cwd()).api, flow_runs[-1]) if flow_runs else ""

    def send(mlflow: MlflowRun) -> None:
        if page:
            mlflow.tags({FLOW_RUN_TAG: page})
        if failure:
            mlflow.tags({"agentfly.last_failure": failure})
            mlflow.finish(status, _now())
        sync(current, mlflow)

    def report(changed: Run) -> None:
        nonlocal current
        current = changed
        background.start(send)

    try:
        yield report
        # before the last sync: a tag that is added meanwhile is sent by the next one
        evaluate = current.settings.evaluate
        synced = _synced(run.store, place, evaluate, run.name) if current.finished else {}
    except BaseException as error:  # any end of the run is reported
        failure, status = fault(error), "FAILED" if isinstance(error, Exception) else "KILLED"
        raise
    finally:
        if missing := background.finish(send, f"`{command}`"):
            print(missing)
    if isinstance(background.error, Damaged):
        raise background.error
    if synced and background.error is None:
        run.store.write_json(run.layout.mlflow, synced)


def report_stage(
    experiment: Experiment, stage: str, started_ms: int, send: MlflowCall, policy: str = ""
) -> None:
    """Report a stage outside any run; an experiment's stage (of a policy) has one MLflow run."""

    def report(mlflow: MlflowRun) -> None:
        mlflow.tags({"agentfly.stage": stage, "agentfly.policy": policy})
        send_settings(experiment, mlflow)
        send(mlflow)
        mlflow.finish("FINISHED", _now())

    uid = hashing.digest([stage, experiment.settings.digest, policy])
    naming = (experiment.name, f"{stage} {policy[:8]}".strip(), uid, started_ms)
    place = mlflow_place(experiment.site)
    background = Background(place, partial(MlflowRun, place, *naming))
    if missing := background.finish(report, "the same command"):
        print(missing)


def report_again(experiment: Experiment, name: str) -> None:
    """Sync a finished run, unless MLflow has all of it.

    Raises Damaged for lost files, and Locked while a process writes the run.
    """
    store, place = experiment.store, mlflow_place(experiment.site)
    if sent(store, name) != _synced(store, place, experiment.settings.evaluate, name):
        with opened(experiment, name) as run, reporting(run):
            pass


def sent(store: Store, name: str) -> JSON:
    """Return the content of mlflow.json, None without one; a damaged file is logged."""
    try:
        content: JSON = store.read_json(RunLayout(name).mlflow)
        return content
    except Damaged as damage:
        logger.warning("%s The run is sent to MLflow again.", damage)
        return None


def _synced(store: Store, place: MlflowStore, evaluate: Evaluate, name: str) -> dict[str, JSON]:
    """Return the content of mlflow.json for a run that MLflow has completely."""
    settings, tags = known_run(store, name)["settings_digest"], tags_of(store, name)
    parts = [place.uri, settings, evaluate.model_dump(mode="json"), *tags]
    return {"synced": hashing.digest(parts)}


def _now() -> int:
    return int(time() * 1000)
