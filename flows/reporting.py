"""Report runs and stages to MLflow in a separate thread, because stages must not wait for MLflow.

This module does not import Prefect, because the command line uses it before Prefect's environment
is set.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache

from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.models.type_names import DataFrame
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import Run, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.tracking.background import Background
from agentfly_core.runs.tracking.mlflow_client import FLOW_RUN, MlflowRun
from agentfly_core.runs.tracking.sync import is_complete, sync
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault
from flows.local.mlflow_ui import mlflow_place
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

logger = logging.getLogger(__name__)


@contextmanager
def reporting(run: Run) -> Iterator[Callable[[Run], None]]:
    """Yield a function that syncs a run in a thread. The last sync ends with the block.

    If data is missing in MLflow at the end, the reason is printed. Raises Damaged if files of a
    finished run are lost.
    """
    place, current, status = mlflow_place(run.experiment.site), run, ""
    flow_runs = run.links("prefect_flow_run_ids")
    tags = {FLOW_RUN: flow_run_page(settle().api, flow_runs[-1]) if flow_runs else ""}

    @cache
    def connected() -> MlflowRun:
        return MlflowRun(place, run.experiment.name, run.name, run.uid, run.created_ms)

    def send() -> None:
        mlflow = connected()
        mlflow.tags(tags)
        if status:
            mlflow.finish(status)
        sync(current, mlflow)

    def report(changed: Run) -> None:
        nonlocal current
        current = changed
        background.start()

    background = Background(place, send, f"`{continuing(run.store, run.name, run.record)}`")
    try:
        yield report
    except BaseException as error:  # every end of the run is reported
        status = "FAILED" if isinstance(error, Exception) else "KILLED"
        tags["agentfly.last_failure"] = fault(error)
        raise
    finally:
        background.finish()
    if isinstance(background.error, Damaged):
        raise background.error


def reported(request: RunRequest) -> Summary | None:
    """Send a finished run to MLflow and return its summary. Return None for an unfinished run.

    Raises Locked while another process writes the run.
    """
    experiment, summary = request.experiment, request.finished()
    if summary and not is_complete(request, mlflow_place(experiment.site)):
        try:
            with opened(experiment, request.name) as run, reporting(run):
                pass
        except Damaged as damage:
            logger.warning("%s The run repeats the damaged stages.", damage)
            return None
    return summary


def report_stage(
    experiment: Experiment,
    stage: str,
    data: Pointer,
    send_results: Callable[[MlflowRun], None],
    *,
    policy: str = "",
    version: str = "",
) -> None:
    """Send a stage outside any run: settings, the dataset with its DVC version, and results, which
    `send_results` sends.

    Each stage of an experiment, or of a policy, has one MLflow run. Missing data is reported.
    """
    place = mlflow_place(experiment.site)

    def send() -> None:
        settings, site, name = experiment.settings, experiment.site, f"{stage} {policy[:8]}"
        uid = hashing.digest([stage, settings.digest, policy])
        mlflow = MlflowRun(place, experiment.name, name.strip(), uid)
        mlflow.tags({"agentfly.stage": stage, "agentfly.policy": policy})
        mlflow.settings(settings.model_dump(mode="json"), site.model_dump(mode="json"))
        mlflow.dataset(experiment.name, f"{experiment.store.uri}/{data.uri}", data.digest, version)
        send_results(mlflow)
        mlflow.finish("FINISHED")

    Background(place, send, "the same command").finish()


def report_rows(
    experiment: str, settings: Mapping[str, JSON], site: Site, flow: str, page: str, rows: DataFrame
) -> None:
    """Send the rows of an experiment's flow, as a table and as metrics. The step of a metric is the
    number of its row, from 1.

    The flow run with this `page` has one MLflow run, even if it is retried. Missing data is
    reported.
    """
    place = mlflow_place(site)

    def send() -> None:
        mlflow = MlflowRun(place, experiment, flow, hashing.digest([flow, page]))
        mlflow.settings(settings, site.model_dump(mode="json"))
        mlflow.tags({"agentfly.stage": flow, FLOW_RUN: page})
        for number, row in enumerate(rows.to_dict("records"), 1):
            # what a row lacks is NaN
            numbers = {n: v for n, v in row.items() if isinstance(v, float | int) and v == v}
            metrics = {f"{flow}/{n}": float(v) for n, v in numbers.items()}
            mlflow.points(metrics, number, mlflow.started_ms)
        mlflow.finish("FINISHED")
        mlflow.table(flow, 0, rows)

    Background(place, send, "another run of the flow").finish()
