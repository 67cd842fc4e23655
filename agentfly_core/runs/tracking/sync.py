"""Send a run to MLflow.

The run's files are authoritative; a sync sends the entries that are missing in MLflow. A tag of the
MLflow run names the last step of which MLflow has all metrics, and another tag the last step whose
table it has. Each metric is sent with the time at which its stage ended, so MLflow stores a metric
that is sent twice only once.
"""

from contextlib import nullcontext, suppress

from agentfly_core.experiment.run_layout import metrics_of
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.models.adapter_artifact import base_of
from agentfly_core.records.run_record import Summary
from agentfly_core.runs import episodes
from agentfly_core.runs.run import Run, StagesBefore, links_of, stages_before
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import Evaluation, Evaluations
from agentfly_core.runs.tracking.mlflow_client import (
    DATASET,
    DIGEST,
    SUCCESS,
    MlflowRun,
    MlflowStore,
)
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.stage_metrics import measured
from agentfly_core.store.store import Store
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.json_value import as_json

SYNCED = "agentfly.synced_step"
EVALUATE = "agentfly.synced_evaluate"
TABLED = "agentfly.synced_table"
COMPLETE = "mlflow_complete"
"""The kind of links that hold digests of run states that MLflow has received completely."""


def state_of(run: Run | RunRequest, place: MlflowStore) -> str:
    """Return a digest of the MLflow store and of all data that may change in a finished run."""
    settings, tags = run.experiment.settings, tags_of(run.experiment.store, run.name)
    evaluate = settings.evaluate.model_dump(mode="json")
    return hashing.digest([place.uri, settings.steps, evaluate, *tags])


def is_complete(finished: RunRequest, place: MlflowStore) -> bool:
    """Whether MLflow has all data of a finished run."""
    links = links_of(finished.experiment.store, finished.name)
    return state_of(finished, place) in links.get(COMPLETE, [])


def sync(run: Run, mlflow: MlflowRun) -> None:
    """Send all entries of a running or finished run that are missing in MLflow.

    Raises Damaged if a metrics.json of a finished run is missing. Raises the errors of MLflow's
    client.
    """
    # computed first, because a tag may be added during this sync; the next sync sends it
    state, summary = state_of(run, mlflow.place), run.finished
    run.link("mlflow_run_ids", mlflow.run_id)
    evaluate = hashing.digest(run.settings.evaluate.model_dump(mode="json"))
    if mlflow.tag(EVALUATE) != evaluate:  # a continued run may evaluate earlier steps
        mlflow.tags({SYNCED: "", EVALUATE: evaluate})
    _describe(run, mlflow)
    with nullcontext() if summary else suppress(FileNotFoundError):  # a stage is still running
        if not mlflow.tag(SYNCED):
            _send_start(run, mlflow)
        for step in run.settings.own_steps:
            if step > int(mlflow.tag(SYNCED)):
                _send_step(run, step, mlflow)
    if summary:
        _send_end(run, summary, mlflow)
    # last, because metrics must be sent even if the artifact store is full or forbidden
    _send_tables(run, mlflow)
    if summary:
        run.link(COMPLETE, state)


def _describe(run: Run, mlflow: MlflowRun) -> None:
    """Send the settings, the user's tags, and the policies of other runs that the run uses."""
    site = run.experiment.site.model_dump(mode="json")
    mlflow.settings(run.settings.model_dump(mode="json"), site)
    tags = {"agentfly.run_folder": f"{run.store.uri}/{run.layout.uri}"}
    tags["agentfly.tags"] = " ".join(tags_of(run.store, run.name))
    if reference := run.reference:
        tags["agentfly.reference_policy"] = reference.digest
    if parent := run.parent:
        tags |= {"agentfly.parent": parent.run, "agentfly.parent_policy": parent.policy.digest}
    mlflow.tags(tags)


def send_stages(stages: StagesBefore, store: Store, mlflow: MlflowRun) -> None:
    """Send the seconds of each stage, and the metrics of each round: `warm_start/train/loss`."""
    for stage, artifacts in stages.items():
        measures = [measured(store, artifact) for artifact in artifacts]
        seconds = {f"time/{stage}": sum(each.seconds for each in measures)}
        mlflow.points(seconds, 0, measures[-1].time_ms)
        for number, each in enumerate(measures):
            metrics = {f"{stage}/{name}": value for name, value in each.metrics.items()}
            mlflow.points(metrics, number, each.time_ms)


def send_evaluation(evaluation: Evaluation, step: int, mlflow: MlflowRun) -> None:
    """Send the evaluation of a step's policy, including its `datasets`."""
    for each in (evaluation, *evaluation.datasets.values()):
        mlflow.points(each.metrics, step, each.time_ms)


def _send_start(run: Run, mlflow: MlflowRun) -> None:
    """Send the stages before the first step. Raises FileNotFoundError while one is running."""
    start, data, step = run.start, _data(run), run.settings.start_step
    version = run.record["dataset_version"]
    mlflow.dataset(run.experiment.name, f"{run.store.uri}/{data.uri}", data.digest, version)
    send_stages(stages_before(run.store, run.name), run.store, mlflow)
    if run.settings.goal:
        _send_judged(run, start, "test", step, mlflow)
    mlflow.tags({SYNCED: str(step)})


def _send_step(run: Run, step: int, mlflow: MlflowRun) -> None:
    """Send a step's metrics and evaluation. Raises FileNotFoundError if one has not finished."""
    layout = run.layout.step(step)
    if not run.finished and run.store.read_json(layout.metrics) is None:
        raise FileNotFoundError(f"Step {step} of {run.name} has not finished.")
    point = metrics_of(run.store, layout)
    mlflow.points(point["metrics"], step, point["time_ms"])
    if run.evaluates(step):
        # evaluate.every may have changed since a finished run
        with suppress(FileNotFoundError) if run.finished else nullcontext():
            _send_judged(run, run.store.artifact(layout.policy), "validation", step, mlflow)
    mlflow.tags({SYNCED: str(step)})


def _send_tables(run: Run, mlflow: MlflowRun) -> None:
    """Send a table with the text of each episode of the first step and of every few steps."""
    steps, every = run.settings.own_steps, run.settings.log_trajectories_every
    tabled, synced = (int(mlflow.tag(mark) or 0) for mark in (TABLED, SYNCED))
    for step in steps:
        if tabled < step <= synced and (step == steps.start or step % every == 0):
            played = episodes.read_step(run.store, run.name, step)
            mlflow.table("trajectories", step, episodes.table(played))
            mlflow.tags({TABLED: str(step)})


def _send_judged(run: Run, policy: Pointer, split: str, step: int, mlflow: MlflowRun) -> Evaluation:
    """Send an evaluation. Raises FileNotFoundError if it has not finished."""
    evaluations, further = Evaluations(run.experiment), run.settings.evaluate.datasets
    evaluation = evaluations.stored(policy, split, _data(run))
    if split == "test":
        evaluation = evaluations.with_datasets(policy, evaluation)
        if len(evaluation.datasets) < len(further) and not run.finished:
            raise FileNotFoundError(f"{policy.uri} is not evaluated on all datasets yet.")
    send_evaluation(evaluation, step, mlflow)
    return evaluation


def _send_end(run: Run, summary: Summary, mlflow: MlflowRun) -> None:
    """Send the last evaluation, end the run, and register its policy as a model version."""
    policy = final_policy(run.store, run.name)
    ended, success = measured(run.store, policy).time_ms, {}
    if run.settings.goal:
        # sent before `finish`, because MLflow shows an ended run as complete
        after = _send_judged(run, policy, "test", run.settings.steps, mlflow)
        ended, success = after.time_ms, {SUCCESS: f"{after.success:.4f}"}
    lineage = {
        "agentfly.run": run.name,
        "agentfly.start_policy": run.start.digest,
        "agentfly.policy_uri": f"{run.store.uri}/{policy.uri}",
        DIGEST: policy.digest,
        DATASET: _data(run).digest,
        **success,
    }
    if base := base_of(run.store, policy):
        lineage["agentfly.base_uri"] = f"{run.store.uri}/{base.uri}"
        lineage["agentfly.base_digest"] = base.digest
    mlflow.register(f"agentfly-{run.experiment.name}", lineage)
    mlflow.finish("FINISHED", ended, as_json(summary))


def _data(run: Run) -> Pointer:
    """The dataset that the run uses, even if the dataset's source files have changed since."""
    record = run.record
    return Pointer(record["dataset_uri"], record["dataset_digest"])
