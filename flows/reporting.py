"""Report runs and stages to MLflow in a separate thread, because stages must not wait for MLflow.

This module does not import Prefect, because the command line uses it before Prefect's environment
is set.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from time import time
from typing import Any

from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.records.run_record import Summary
from agentfly_core.runs.listing import continuing
from agentfly_core.runs.run import NONE_BEFORE, Run, StagesBefore, links_of, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import Evaluation
from agentfly_core.runs.tracking import sync as syncs
from agentfly_core.runs.tracking.background import Background
from agentfly_core.runs.tracking.mlflow_client import FLOW_RUN, MlflowRun
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault
from flows.local.mlflow_ui import mlflow_place
from flows.local.prefect_server import flow_run_page
from flows.local.state_dirs import settle

logger = logging.getLogger(__name__)
COMPLETE = "mlflow_complete"
"""The key in a run's links.json that shows whether MLflow has received all data of the run.

The value is a list of digests. After all data have been sent, the run's current digest (the result
of `state_of`) is added to the list. If the list lacks the current digest, data must be sent again.
"""


@contextmanager
def reporting(run: Run) -> Iterator[Callable[[Run], None]]:
    """Send a run to MLflow during the `with` block. Yield a function that sends the run's new data.

    The function returns at once, because a separate thread sends the data. The end of the block
    waits until all data are sent, or until a time limit. If data could not be sent, print the
    reason. Raises Damaged if files of a finished run are lost.
    """
    place, current, status, state = mlflow_place(run.experiment.site), run, "", ""
    flow_runs = run.links("prefect_flow_run_ids")
    tags = {FLOW_RUN: flow_run_page(settle().api, flow_runs[-1]) if flow_runs else ""}

    @cache
    def connected() -> MlflowRun:
        return MlflowRun(place, run.experiment.name, run.name, run.uid, run.created_ms)

    def send() -> None:
        connected().tags(tags)
        if status:
            connected().finish(status, _now())
        syncs.sync(current, connected())

    def report(changed: Run) -> None:
        nonlocal current
        current = changed
        background.start()

    background = Background(place, send, f"`{continuing(run.store, run.name, run.record)}`")
    try:
        yield report
        # computed before the last sync: if a tag is added meanwhile, the digest is outdated
        state = state_of(current) if current.finished else ""
    except BaseException as error:  # every end of the run is reported
        status = "FAILED" if isinstance(error, Exception) else "KILLED"
        tags["agentfly.last_failure"] = fault(error)
        raise
    finally:
        background.finish()
    if isinstance(background.error, Damaged):
        raise background.error
    if state and background.error is None:
        run.link(COMPLETE, state)


def reported(request: RunRequest) -> Summary | None:
    """If a run is finished, send missing data to MLflow, and return the run's summary.

    Returns None for an unfinished run, and for a run with damaged files. Raises Locked if another
    process writes the run.
    """
    summary, store = request.finished(), request.experiment.store
    if summary and state_of(request) not in links_of(store, request.name).get(COMPLETE, []):
        try:
            with opened(request.experiment, request.name) as run, reporting(run):
                pass
        except Damaged as damage:
            logger.warning("%s The run repeats the damaged stages.", damage)
            return None
    return summary


def state_of(run: Run | RunRequest) -> str:
    """Return a digest that changes if a finished run must be sent to MLflow again.

    It depends on the address of the MLflow store, and on all data that may change in a finished
    run, such as its tags.
    """
    experiment = run.experiment
    evaluate = experiment.settings.evaluate.model_dump(mode="json")
    tags, place = tags_of(experiment.store, run.name), mlflow_place(experiment.site)
    return hashing.digest([place.uri, experiment.settings.steps, evaluate, *tags])


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
    """Send the result of a stage that belongs to no run, such as `agentfly evaluate`, to MLflow.

    The settings and the dataset with its DVC version `version` are sent. `stages` maps names of
    stages to their artifacts. The durations and metrics of these artifacts, and the metrics of
    `evaluation`, are sent, too. `policy` is the digest of the evaluated policy, or empty for other
    stages. A stage with the same settings and the same policy always has the same MLflow
    run. If something could not be sent, print the reason.
    """
    place = mlflow_place(experiment.site)

    def send() -> None:
        name, uid = f"{stage} {policy[:8]}".strip(), [stage, experiment.settings.digest, policy]
        mlflow = MlflowRun(place, experiment.name, name, hashing.digest(uid), _now())
        mlflow.tags({"agentfly.stage": stage, "agentfly.policy": policy})
        settings, site = experiment.settings, experiment.site
        mlflow.settings(settings.model_dump(mode="json"), site.model_dump(mode="json"))
        uri = f"{experiment.store.uri}/{data.uri}"
        mlflow.dataset(experiment.name, uri, data.digest, version)
        syncs.send_stages(stages, experiment.store, mlflow)
        if evaluation:
            syncs.send_evaluation(evaluation, 0, mlflow)
        mlflow.finish("FINISHED", _now())

    Background(place, send, "the same command").finish()


def report_rows(
    experiment: str,
    settings: Mapping[str, JSON],
    site: Site,
    flow: str,
    page: str,
    rows: Sequence[Mapping[str, Any]],
) -> None:
    """Send the result rows of a flow to MLflow, as a table and as metrics.

    The first row gives the values of the metrics at step 1, the second row at step 2, and so on.
    `flow` is the name of the flow, and `page` is the address of the flow run in Prefect. A flow run
    has one MLflow run, even if it is retried. If data could not be sent, print the reason.
    """
    import pandas as pd  # takes half a second

    place, now = mlflow_place(site), _now()

    def send() -> None:
        mlflow = MlflowRun(place, experiment, flow, hashing.digest([flow, page]), now)
        mlflow.settings(settings, site.model_dump(mode="json"))
        mlflow.tags({"agentfly.stage": flow, FLOW_RUN: page})
        mlflow.table(flow, 0, pd.DataFrame(rows))
        for number, row in enumerate(rows, 1):
            # a value that a row lacks is NaN
            numbers = {
                f"{flow}/{name}": float(value)
                for name, value in row.items()
                if isinstance(value, float | int) and value == value
            }
            # a retry sends the same points, which MLflow stores once
            mlflow.points(numbers, number, mlflow.started_ms)
        mlflow.finish("FINISHED", _now())

    Background(place, send, "another run of the flow").finish()


def _now() -> int:
    return int(time() * 1000)
