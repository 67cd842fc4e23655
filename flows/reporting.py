"""Reports of runs and stages to MLflow, in a thread of their own: no stage waits for MLflow.

It imports no Prefect: the command line uses it before Prefect's environment is set.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, time

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import Run, known_run, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import Evaluation, StagesBefore
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault, redact
from agentfly_core.tracking.mlflow_client import FLOW_RUN, MlflowStore
from agentfly_core.tracking.mlflow_run import REFUSALS, MlflowRun
from agentfly_core.tracking.sync import Sender, sync
from flows.local.mlflow_ui import mlflow_place
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

logger = logging.getLogger(__name__)
LOCAL, SERVER, OUTAGE = 1800.0, 20.0, 0.03
"""Limits of the wait at the end of a run: seconds for a database without a server, seconds for a
server, and the share of the run's time for a server whose last answer was an error.
"""
MlflowCall = Callable[[MlflowRun], None]


class Background:
    """Calls with the MlflowRun that `connect` returns, in a daemon thread.

    `error` is the last call's error, None after a success.
    """

    def __init__(self, place: MlflowStore, connect: Callable[[], MlflowRun]) -> None:
        self.error: Exception | None = None
        self._place, self._connect, self._began = place, connect, monotonic()
        self._mlflow: MlflowRun | None = None
        self._thread = threading.Thread()

    def start(self, send: MlflowCall) -> None:
        """Call `send` in the thread, unless the call before is at work."""
        if not self._thread.is_alive():
            self._thread = threading.Thread(target=self._call, args=(send,), daemon=True)
            self._thread.start()

    def finish(self, send: MlflowCall, command: str) -> None:
        """Call `send` at last, within a time limit, and print what MLflow lacks.

        `command` is a phrase that names the command which sends the rest.
        """
        begin, limit = monotonic(), SERVER if self._place.served else LOCAL
        if self._place.served and self.error:
            limit = min(SERVER, max(1.0, OUTAGE * (begin - self._began)))
        if self._thread.is_alive():
            self._thread.join(limit)
        self.start(send)
        self._thread.join(max(0.0, begin + limit - monotonic()))
        if self._thread.is_alive():
            self.error = TimeoutError(f"no answer in {limit:.0f} s")
        self._print_missing(command)

    def _call(self, send: MlflowCall) -> None:
        try:
            self._mlflow = self._mlflow or self._connect()
            send(self._mlflow)
            self.error = None
        except Exception as error:  # MLflow and its client raise many types
            self.error = error

    def _print_missing(self, command: str) -> None:
        store = f"MLflow ({redact(self._place.uri)})"
        refused = self._mlflow.refused if self._mlflow else {}
        lines = [f"{store} refused {name} ({reason})." for name, reason in refused.items()]
        if len(lines) > 3:
            lines[3:] = [f"{store} refused {len(lines) - 3} more."]
        if isinstance(self.error, Damaged | FileNotFoundError):  # a file of the run, not MLflow
            lines.append(f"The run was not sent to {store}: {fault(self.error)}")
        elif cause := self.error:
            while isinstance(earlier := cause.__cause__ or cause.__context__, Exception):
                cause = earlier
            reason = fault(cause).splitlines()[0][:200]
            lines.append(f"{store} was not reached: {reason.rstrip('.')}.")
            if getattr(self.error, "error_code", "") not in REFUSALS:
                lines.append(f"Nothing is lost: {command} sends the rest.")
        for line in lines:
            print(line)


@contextmanager
def reporting(run: Run) -> Iterator[Callable[[Run], None]]:
    """A function that syncs a run in a thread; the last sync ends with the block.

    Prints what MLflow lacks then. Raises Damaged for a finished run's lost files.
    """
    place, current, status, failure = mlflow_place(run.experiment.site), run, "", ""
    complete: dict[str, JSON] = {}
    flow_runs = run.links("prefect_flow_run_ids")
    page = flow_run_page(settle(Path.cwd()).api, flow_runs[-1]) if flow_runs else ""
    naming = (run.experiment.name, run.name, run.uid, run.created_ms)
    background = Background(place, partial(MlflowRun, place, *naming))
    command = f"`{continuing(run.store, run.name, run.record)}`"

    def send(mlflow: MlflowRun) -> None:
        if page:
            mlflow.tags({FLOW_RUN: page})
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
        if current.finished:  # before the last sync: the next sync sends a tag added meanwhile
            complete = mark(RunRequest(current.experiment, run.name))
    except BaseException as error:  # any end of the run is reported
        failure, status = fault(error), "FAILED" if isinstance(error, Exception) else "KILLED"
        raise
    finally:
        background.finish(send, command)
    if isinstance(background.error, Damaged):
        raise background.error
    if complete and background.error is None:
        run.store.write_json(run.layout.mlflow, complete)


def _now() -> int:
    return int(time() * 1000)


@dataclass(frozen=True)
class StageReport:
    """A stage outside any run; an experiment's stage (of a policy) has one MLflow run.

    Create it when the stage starts: `StageReport(experiment, "prepare").send(data, version)`.
    """

    experiment: Experiment
    stage: str
    policy: str = ""
    started_ms: int = field(default_factory=_now)

    def send(
        self,
        data: Pointer,
        *,
        version: str = "",
        stages: StagesBefore | None = None,
        evaluation: Evaluation | None = None,
    ) -> None:
        """Send settings, the dataset and its DVC version, and results; print what MLflow lacks."""
        experiment, place = self.experiment, mlflow_place(self.experiment.site)
        uid = hashing.digest([self.stage, experiment.settings.digest, self.policy])
        name = f"{self.stage} {self.policy[:8]}".strip()

        def report(mlflow: MlflowRun) -> None:
            mlflow.tags({"agentfly.stage": self.stage, "agentfly.policy": self.policy})
            sender = Sender(experiment, mlflow)
            sender.settings()
            sender.dataset(data, version)
            sender.stages(stages or {})
            if evaluation:
                sender.evaluation(evaluation, 0)
            mlflow.finish("FINISHED", _now())

        naming = (experiment.name, name, uid, self.started_ms)
        Background(place, partial(MlflowRun, place, *naming)).finish(report, "the same command")


def report_again(request: RunRequest) -> None:
    """Sync a finished run, unless MLflow has all of it.

    Raises Damaged for lost files, and Locked while a process writes the run.
    """
    if sent(request.experiment.store, request.name) != mark(request):
        with opened(request.experiment, request.name) as run, reporting(run):
            pass


def sent(store: Store, name: str) -> JSON:
    """Return the content of mlflow.json, None without one; a damaged file is logged."""
    try:
        content: JSON = store.read_json(RunLayout(name).mlflow)
        return content
    except Damaged as damage:
        logger.warning("%s The run is sent to MLflow again.", damage)
        return None


def mark(request: RunRequest) -> dict[str, JSON]:
    """Return the content of mlflow.json for a run that MLflow has completely."""
    experiment, uri = request.experiment, mlflow_place(request.experiment.site).uri
    settings = known_run(experiment.store, request.name)["settings_digest"]
    tags = tags_of(experiment.store, request.name)
    evaluate = experiment.settings.evaluate.model_dump(mode="json")
    return {"synced": hashing.digest([uri, settings, evaluate, *tags])}
