"""Send a run to MLflow.

A sync reads the files of the run, and sends the settings, tags, metrics and tables that are missing
in MLflow. A tag of the MLflow run has the number of the last step that was sent completely. Each
metric is sent with a fixed time: the end of the step or stage in which the metric was measured. If
a metric is sent twice, MLflow therefore stores it only once.
"""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from agentfly_core.experiment.run_layout import metrics_of
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.models.adapter_artifact import base_of
from agentfly_core.runs import episodes
from agentfly_core.runs.run import Run, StagesBefore, stages_before
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import Evaluation, Evaluations
from agentfly_core.runs.tracking.mlflow_client import DATASET, DIGEST, SUCCESS, MlflowRun
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.stage_metrics import measured
from agentfly_core.store.store import Store
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.json_value import JSON, as_json

SYNCED = "agentfly.synced_step"
EVALUATE = "agentfly.synced_evaluate"


def send_stages(stages: StagesBefore, store: Store, mlflow: MlflowRun) -> None:
    """Send the seconds and the metrics of the stages that ran before the first step.

    An example is `warm_start/train/loss` for each round of the warm start.
    """
    for stage, artifacts in stages.items():
        measures = [measured(store, artifact) for artifact in artifacts]
        seconds = {f"time/{stage}": sum(each.seconds for each in measures)}
        mlflow.points(seconds, 0, measures[-1].time_ms)
        for number, each in enumerate(measures):
            metrics = {f"{stage}/{name}": value for name, value in each.metrics.items()}
            mlflow.points(metrics, number, each.time_ms)


def send_evaluation(evaluation: Evaluation, step: int, mlflow: MlflowRun) -> None:
    """Send the metrics of `evaluation` and of each evaluation in `evaluation.datasets`.

    `step` is the step of the evaluated policy.
    """
    for each in (evaluation, *evaluation.datasets.values()):
        mlflow.points(each.metrics, step, each.time_ms)


def sync(run: Run, mlflow: MlflowRun) -> None:
    """Send the settings, tags, metrics and tables of a run that are missing in MLflow.

    The run may be running or finished. A finished run is also ended in MLflow, and its last policy
    is registered there.

    Raises Damaged if a step of a finished run lacks its metrics.json. Errors of MLflow's client are
    raised, too.
    """
    run.link("mlflow_run_ids", mlflow.run_id)
    sender, finished = _Sender(run, mlflow), run.finished
    evaluate = hashing.digest(run.settings.evaluate.model_dump(mode="json"))
    if mlflow.tag(EVALUATE) != evaluate:  # a continued run may evaluate earlier steps
        mlflow.tags({SYNCED: "", EVALUATE: evaluate})
    site = run.experiment.site.model_dump(mode="json")
    mlflow.settings(run.settings.model_dump(mode="json"), site)
    folder = {"agentfly.run_folder": f"{run.store.uri}/{run.layout.uri}"}
    tags = {"agentfly.tags": " ".join(tags_of(run.store, run.name))}
    mlflow.tags({**folder, **tags, **sender.parents})
    with nullcontext() if finished else suppress(FileNotFoundError):  # a stage is still running
        if not mlflow.tag(SYNCED):
            sender.start()
        for step in run.settings.own_steps:
            if step > int(mlflow.tag(SYNCED)):
                sender.step(step)
    if finished:
        sender.end(as_json(finished))


@dataclass(frozen=True)
class _Sender:
    run: Run
    mlflow: MlflowRun

    def start(self) -> None:
        """Send the dataset, the metrics of the stages before the first step (such as the warm
        start), and the evaluation of the start policy.

        Raises FileNotFoundError if a stage has not finished.
        """
        run, data, step = self.run, self.data, self.run.settings.start_step
        uri, version = f"{run.store.uri}/{data.uri}", run.record["dataset_version"]
        self.mlflow.dataset(run.experiment.name, uri, data.digest, version)
        start = run.start
        send_stages(stages_before(run.store, run.name), run.store, self.mlflow)
        if run.settings.goal:
            self.judged(start, "test", step)
        self.mlflow.tags({SYNCED: str(step)})

    def step(self, step: int) -> None:
        """Send the metrics of a step.

        If the policy of the step is evaluated (see `evaluate.every`), the evaluation is sent, too.
        For some steps, a table of the episodes is sent (see `log_trajectories_every`). If the
        run is still running, raises FileNotFoundError if the step or its evaluation is unfinished.
        """
        run, layout = self.run, self.run.layout.step(step)
        if not run.finished and run.store.read_json(layout.metrics) is None:
            raise FileNotFoundError(f"Step {step} of {run.name} has not finished.")
        point = metrics_of(run.store, layout)
        self.mlflow.points(point["metrics"], step, point["time_ms"])
        if run.evaluates(step):
            # a finished run may lack this evaluation, because evaluate.every may have changed
            with suppress(FileNotFoundError) if run.finished else nullcontext():
                self.judged(run.store.artifact(layout.policy), "validation", step)
        if step == run.settings.own_steps.start or step % run.settings.log_trajectories_every == 0:
            # tables are large, because they contain the text of each episode
            played = episodes.read_step(run.store, run.name, step)
            self.mlflow.table("trajectories", step, episodes.table(played))
        self.mlflow.tags({SYNCED: str(step)})

    def judged(self, policy: Pointer, split: str, step: int) -> Evaluation:
        """Send the evaluation of a policy on a split to MLflow, and return the evaluation.

        `step` is the step of the policy. Raises FileNotFoundError if the evaluation has not
        finished.
        """
        run, evaluations = self.run, Evaluations(self.run.experiment)
        evaluation = evaluations.stored(policy, split, self.data)
        if split == "test":
            evaluation = evaluations.with_datasets(policy, evaluation)
            if len(evaluation.datasets) < len(run.settings.evaluate.datasets) and not run.finished:
                raise FileNotFoundError(f"{policy.uri} is not evaluated on all datasets yet.")
        send_evaluation(evaluation, step, self.mlflow)
        return evaluation

    def end(self, summary: Mapping[str, JSON]) -> None:
        """End the run in MLflow, and register the run's last policy as a model version.

        If the run has rewards, the policy's evaluation on the test problems is sent first.
        """
        run, policy = self.run, final_policy(self.run.store, self.run.name)
        ended, success = measured(run.store, policy).time_ms, {}
        if run.settings.goal:
            # sent before `finish`, because MLflow shows an ended run as complete
            after = self.judged(policy, "test", run.settings.steps)
            ended, success = after.time_ms, {SUCCESS: f"{after.success:.4f}"}
        self.mlflow.finish("FINISHED", ended, summary)
        lineage = {
            "agentfly.run": run.name,
            "agentfly.experiment": run.experiment.name,
            "agentfly.settings_digest": run.settings.digest,
            "agentfly.start_policy": run.start.digest,
            "agentfly.policy_uri": f"{run.store.uri}/{policy.uri}",
            DIGEST: policy.digest,
            **success,
            DATASET: self.data.digest,
            **self.parents,
        }
        if base := base_of(run.store, policy):
            lineage["agentfly.base_uri"] = f"{run.store.uri}/{base.uri}"
            lineage["agentfly.base_digest"] = base.digest
        self.mlflow.register(f"agentfly-{run.experiment.name}", lineage)

    @property
    def data(self) -> Pointer:
        """The dataset that the run uses, as run.json records it.

        The source files of the dataset may have changed since the run recorded it. Raises
        FileNotFoundError if the run has not read a dataset yet.
        """
        record = self.run.record
        if "dataset_uri" not in record:
            raise FileNotFoundError(f"{self.run.name} has not read a dataset yet.")
        return Pointer(record["dataset_uri"], record["dataset_digest"])

    @property
    def parents(self) -> dict[str, str]:
        """Tags that name policies of other runs.

        The named policies are the policy from which this run starts (its parent), and the reference
        policy of the KL penalty.
        """
        reference, parent = self.run.reference, self.run.parent
        tags = {"agentfly.reference_policy": reference.digest} if reference else {}
        if parent:
            tags |= {"agentfly.parent": parent.run, "agentfly.parent_policy": parent.policy.digest}
        return tags
