"""Send a run to MLflow. The run's files are the truth, and a sync sends the missing entries.

A tag of the MLflow run is the last step that is complete there. Points carry the time at which
their stage ended, so a point that is sent again is stored once.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress

from agentfly_core.config.loading import flat
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import metrics_of
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.models.adapter_artifact import base_of
from agentfly_core.runs import episodes, summary
from agentfly_core.runs.run import Run
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import Evaluation, StagesBefore
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.stage_metrics import measured
from agentfly_core.system.formats import hashing
from agentfly_core.tracking.mlflow_client import DIGEST, TAGS
from agentfly_core.tracking.mlflow_run import DATASET, SUCCESS, MlflowRun

SYNCED = "agentfly.synced_step"
EVALUATE = "agentfly.synced_evaluate"
BEST = "agentfly.best_success"


def sync(run: Run, mlflow: MlflowRun) -> None:
    """Send what MLflow lacks of a run, at work or finished.

    Raises Damaged for a lost metrics.json of a finished run, and the errors of MLflow's client.
    """
    run.link("mlflow_run_ids", mlflow.run_id)
    send_settings(run.experiment, mlflow)
    evaluate = hashing.digest(run.settings.evaluate.model_dump(mode="json"))
    if mlflow.tag(EVALUATE) != evaluate:  # a continued run may evaluate earlier steps
        mlflow.tags({SYNCED: "", BEST: "", EVALUATE: evaluate})
    folder = {"agentfly.run_folder": _where(run.experiment, run.layout.uri)}
    mlflow.tags({TAGS: " ".join(tags_of(run.store, run.name)), **folder, **_parents(run)})
    with nullcontext() if run.finished else suppress(FileNotFoundError):  # a stage is at work
        _send_start(run, mlflow)
        for step in run.settings.own_steps:
            _send_step(run, mlflow, step)
    if run.finished:
        _send_end(run, mlflow)


def send_settings(experiment: Experiment, mlflow: MlflowRun) -> None:
    """Send the settings of an experiment and its site, and the digests."""
    settings, site = experiment.settings, experiment.site.model_dump(mode="json")
    mlflow.settings({**flat(settings.model_dump(mode="json")), **flat(site, "site.")})
    code = {"agentfly.code_digest": hashing.digest(settings.code)} if settings.code else {}
    mlflow.tags({"agentfly.settings_digest": settings.digest, **code})


def send_dataset(
    experiment: Experiment, mlflow: MlflowRun, data: Pointer, version: str = ""
) -> None:
    """Send the dataset of an experiment, and DVC's version of it."""
    mlflow.dataset(experiment.name, _where(experiment, data.uri), data.digest, "training")
    mlflow.tags({"agentfly.dvc_dataset": version})


def send_stages(experiment: Experiment, mlflow: MlflowRun, stages: StagesBefore) -> None:
    """Send the seconds of stages, and what their rounds measured: `warm_start/train/loss`."""
    for stage, artifacts in stages.items():
        measures = [measured(experiment.store, artifact) for artifact in artifacts]
        seconds = {f"time/{stage}": sum(each.seconds for each in measures)}
        mlflow.points(seconds, 0, measures[-1].time_ms)
        for number, each in enumerate(measures):
            metrics = {f"{stage}/{name}": value for name, value in each.metrics.items()}
            mlflow.points(metrics, number, each.time_ms)


def send_evaluation(mlflow: MlflowRun, evaluation: Evaluation, step: int) -> None:
    """Send the evaluation of a step's policy, and those on further datasets."""
    for each in (evaluation, *evaluation.datasets.values()):
        mlflow.points(each.metrics, step, each.time_ms)


def _send_start(run: Run, mlflow: MlflowRun) -> None:
    """Send the stages before the first step; raises FileNotFoundError until all have ended."""
    if mlflow.tag(SYNCED):
        return
    data = _dataset(run)
    send_dataset(run.experiment, mlflow, data, run.record["dataset_version"])
    send_stages(run.experiment, mlflow, summary.stored_stages(run.experiment, run.parent, data))
    if run.store.read_json(run.layout.start) is None:
        raise FileNotFoundError(f"{run.name} has come to no step yet.")
    _send_judged(run, mlflow, run.start, "test", run.settings.start_step)
    mlflow.tags({SYNCED: str(run.settings.start_step)})


def _send_step(run: Run, mlflow: MlflowRun, step: int) -> None:
    """Send a step's metrics, its evaluation and, each few steps, a table of its episodes.

    Raises FileNotFoundError before all of it is done.
    """
    if step <= int(mlflow.tag(SYNCED)):
        return
    layout = run.layout.step(step)
    if not run.finished and run.store.read_json(layout.metrics) is None:
        raise FileNotFoundError(f"Step {step} of {run.name} has not ended.")
    point = metrics_of(run.store, layout)
    mlflow.points(point["metrics"], step, point["time_ms"])
    if run.evaluates(step):
        # evaluate.every may have changed since a finished run
        with suppress(FileNotFoundError) if run.finished else nullcontext():
            policy = run.store.artifact(layout.policy)
            _send_judged(run, mlflow, policy, "validation", step)
    if step == run.settings.own_steps.start or step % run.settings.log_trajectories_every == 0:
        played = episodes.read_step(run.store, run.name, step)
        mlflow.table("trajectories", step, episodes.table(played))
    mlflow.tags({SYNCED: str(step)})


def _send_judged(run: Run, mlflow: MlflowRun, policy: Pointer, split: str, step: int) -> Evaluation:
    """Send an evaluation; validation chooses the best policy, test in a run without validation.

    Raises FileNotFoundError before all of it is done.
    """
    evaluation = summary.stored_evaluation(run.experiment, policy, split, _dataset(run))
    if split == "test":
        evaluation = summary.with_stored_datasets(run.experiment, policy, evaluation)
        if len(evaluation.datasets) < len(run.settings.evaluate.datasets) and not run.finished:
            raise FileNotFoundError(f"{policy.uri} is not evaluated on all datasets yet.")
    send_evaluation(mlflow, evaluation, step)
    judging = "validation" if any(map(run.evaluates, run.settings.own_steps)) else "test"
    if split == judging and evaluation.success > float(mlflow.tag(BEST) or -1):
        best = {"agentfly.best_policy": evaluation.policy, "agentfly.best_step": str(step)}
        mlflow.tags({**best, BEST: repr(evaluation.success)})
    return evaluation


def _send_end(run: Run, mlflow: MlflowRun) -> None:
    """Send the last evaluation, end the run, and register its policy as a model version."""
    policy, steps = final_policy(run.store, run.name), run.settings.steps
    after = _send_judged(run, mlflow, policy, "test", steps)
    mlflow.tags({"agentfly.last_policy": policy.digest, "agentfly.last_step": str(steps)})
    mlflow.finish("FINISHED", after.time_ms, run.finished)
    lineage = {
        "agentfly.run": run.name,
        "agentfly.experiment": run.experiment.name,
        "agentfly.settings_digest": run.settings.digest,
        "agentfly.start_policy": run.start.digest,
        "agentfly.policy_uri": _where(run.experiment, policy.uri),
        DIGEST: policy.digest,
        SUCCESS: f"{after.success:.4f}",
        DATASET: run.record["dataset_digest"],
        **_parents(run),
    }
    if base := base_of(run.store, policy):
        lineage["agentfly.base_uri"] = _where(run.experiment, base.uri)
        lineage["agentfly.base_digest"] = base.digest
    mlflow.register(f"agentfly-{run.experiment.name}", lineage)


def _dataset(run: Run) -> Artifact:
    """The dataset that the run reads, even if its source files have changed since."""
    if "dataset_uri" not in run.record:
        raise FileNotFoundError(f"{run.name} has read no dataset yet.")
    return run.store.artifact(run.record["dataset_uri"])


def _parents(run: Run) -> dict[str, str]:
    """Tags of the policies of other runs that a run starts from or stays near."""
    tags = {"agentfly.reference_policy": run.reference.digest} if run.reference else {}
    if parent := run.parent:
        tags |= {"agentfly.parent": parent.run, "agentfly.parent_policy": parent.policy.digest}
    return tags


def _where(experiment: Experiment, uri: str) -> str:
    return f"{experiment.store.uri}/{uri}"
