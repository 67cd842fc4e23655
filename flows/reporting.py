"""Reports of runs and stages to MLflow, in a thread of their own: no stage waits for MLflow.

It imports no Prefect: the command line uses it before Prefect's environment is set.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, time

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import NONE_BEFORE, Run, StagesBefore, links_of, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import Evaluation
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.text import fault, redact
from agentfly_core.tracking.mlflow_client import FLOW_RUN, REFUSALS, MlflowRun, MlflowStore
from agentfly_core.tracking.sync import Sender, sync
from flows.local.mlflow_ui import mlflow_place
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

LOCAL, SERVER, OUTAGE = 1800.0, 20.0, 0.03
"""Limits of the wait at the end of a run: seconds for a database without a server, seconds for a
server, and the share of the run's time for a server whose last answer was an error.
"""
COMPLETE = "mlflow_complete"
"""Links of a run: digests of its states that an MLflow store has completely."""


@dataclass
class Background:
    """Calls `send` with the MlflowRun that `connect` returns, in a daemon thread.

    `error` is the last call's error, None after a success. `command` sends the rest later.
    """

    place: MlflowStore
    connect: Callable[[], MlflowRun]
    send: Callable[[MlflowRun], None]
    command: str
    error: Exception | None = None
    _mlflow: MlflowRun | None = None
    _thread: threading.Thread = field(default_factory=threading.Thread)
    _began: float = field(default_factory=monotonic)

    def start(self) -> None:
        """Send in the thread, unless the call before is at work."""
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._call, daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Send for the last time, within a time limit, and print what MLflow lacks."""
        begin, limit = monotonic(), SERVER if self.place.served else LOCAL
        if self.place.served and self.error:
            limit = min(SERVER, max(1.0, OUTAGE * (begin - self._began)))
        if self._thread.is_alive():
            self._thread.join(limit)
        self.start()
        self._thread.join(max(0.0, begin + limit - monotonic()))
        if self._thread.is_alive():
            self.error = TimeoutError(f"no answer in {limit:.0f} s")
        if self.error:
            print(f"MLflow ({redact(self.place.uri)}) lacks data: {_reason(self.error)}.")
            if getattr(self.error, "error_code", "") not in REFUSALS:  # it would fail again
                print(f"Send the rest with {self.command}.")

    def _call(self) -> None:
        try:
            self._mlflow = self._mlflow or self.connect()
            self.send(self._mlflow)
            self.error = None
        except Exception as error:  # MLflow and its client raise many types
            self.error = error


def _reason(error: BaseException) -> str:
    """The first error of a chain in one line."""
    while cause := error.__cause__ or (None if error.__suppress_context__ else error.__context__):
        error = cause
    return fault(error).splitlines()[0][:200].rstrip(".")


@contextmanager
def reporting(run: Run) -> Iterator[Callable[[Run], None]]:
    """A function that syncs a run in a thread; the last sync ends with the block.

    Prints what MLflow lacks then. Raises Damaged for a finished run's lost files.
    """
    place, current, state = mlflow_place(run.experiment.site), run, ""
    ending: dict[str, str] = {}
    flow_runs = run.links("prefect_flow_run_ids")
    page = flow_run_page(settle(Path.cwd()).api, flow_runs[-1]) if flow_runs else ""

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
