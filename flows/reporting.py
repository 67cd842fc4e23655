"""Reports of runs and stages to MLflow, in a thread of their own: no stage waits for MLflow.

It imports no Prefect: the command line uses it before Prefect's environment is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import time

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import NONE_BEFORE, Run, StagesBefore, links_of, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import Evaluation
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import fault
from agentfly_core.tracking.background import Background
from agentfly_core.tracking.mlflow_client import FLOW_RUN, MlflowRun
from agentfly_core.tracking.sync import Sender, sync
from flows.local.mlflow_ui import mlflow_place
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

COMPLETE = "mlflow_complete"
"""Links of a run: digests of its states that an MLflow store has completely."""


@contextmanager
def reporting(run: Run) -> Iterator[Callable[[Run], None]]:
    """A function that syncs a run in a thread; the last sync ends with the block.

    Prints what MLflow lacks then. Raises Damaged for a finished run's lost files.
    """
    place, current, state = mlflow_place(run.experiment.site), run, ""
    ending: dict[str, str] = {}
    flow_runs = run.links("prefect_flow_run_ids")
    page = flow_run_page(settle().api, flow_runs[-1]) if flow_runs else ""

    def send(mlflow: MlflowRun) -> None:
        mlflow.tags({FLOW_RUN: page} if page else {})
        for status, failure in ending.items():
            mlflow.tags({"agentfly.last_failure": failure})
            mlflow.finish(status, _now())
        sync(current, mlflow)

    def report(changed: Run) -> None:
        nonlocal current
        current = changed
        background.start()

    connect = partial(MlflowRun, place, run.experiment.name, run.name, run.uid, run.created_ms)
    command = f"`{continuing(run.store, run.name, run.record)}`"
    background = Background(place, connect, send, command)
    try:
        yield report
        # before the last sync: the next sync sends a tag added meanwhile
        state = state_of(RunRequest(current.experiment, run.name)) if current.finished else ""
    except BaseException as error:  # any end of the run is reported
        ending = {"FAILED" if isinstance(error, Exception) else "KILLED": fault(error)}
        raise
    finally:
        background.finish()
    if isinstance(background.error, Damaged):
        raise background.error
    if state and background.error is None:
        run.link(COMPLETE, state)


def report_again(request: RunRequest) -> None:
    """Sync a finished run, unless MLflow has all of it.

    Raises Damaged for lost files, and Locked while a process writes the run.
    """
    complete = links_of(request.experiment.store, request.name).get(COMPLETE, [])
    if state_of(request) not in complete:
        with opened(request.experiment, request.name) as run, reporting(run):
            pass


def state_of(request: RunRequest) -> str:
    """A digest of the MLflow store and everything that may change in a finished run."""
    experiment = request.experiment
    evaluate = experiment.settings.evaluate.model_dump(mode="json")
    tags = tags_of(experiment.store, request.name)
    steps = experiment.settings.steps
    return hashing.digest([mlflow_place(experiment.site).uri, steps, evaluate, *tags])


def report_stage(
    experiment: Experiment,
    stage: str,
    data: Pointer,
    *,
    policy: str = "",
    version: str = "",
    stages: StagesBefore = NONE_BEFORE,
    evaluation: Evaluation | None = None,
) -> None:
    """Send a stage outside any run: settings, the dataset with its DVC version, and results.

    A stage (of a policy) of an experiment has one MLflow run. Prints what MLflow lacks.
    """

    def send(mlflow: MlflowRun) -> None:
        mlflow.tags({"agentfly.stage": stage, "agentfly.policy": policy})
        sender = Sender(experiment, mlflow)
        sender.settings()
        sender.dataset(data, version)
        sender.stages(stages)
        if evaluation:
            sender.evaluation(evaluation, 0)
        mlflow.finish("FINISHED", _now())

    place, name = mlflow_place(experiment.site), f"{stage} {policy[:8]}".strip()
    uid = hashing.digest([stage, experiment.settings.digest, policy])
    connect = partial(MlflowRun, place, experiment.name, name, uid, _now())
    Background(place, connect, send, "the same command").finish()


def _now() -> int:
    return int(time() * 1000)
