"""Reports of stages and runs to MLflow. They are read from files: a continued run resends them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from agentfly_core.config.loading import flat
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import metrics_of
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.models.adapter_artifact import base_of
from agentfly_core.records.intervals import Rate
from agentfly_core.records.run_record import Summary
from agentfly_core.runs import episodes
from agentfly_core.runs.run import Run
from agentfly_core.runs.run_tags import tags_of
from agentfly_core.runs.summary import (
    Evaluation,
    stored_evaluation,
    stored_stages,
    with_stored_datasets,
)
from agentfly_core.store.stage_metrics import measured
from agentfly_core.store.store import Pointer
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.foreign_names import one_part
from agentfly_core.tracking.mlflow_client import TAGS, Success, Tracker


class MlflowReporter:
    """Reports stages to a tracker; every method returns at once, and may be called again for the
    same thing.
    """

    def __init__(self, experiment: Experiment, tracker: Tracker) -> None:
        self.experiment, self.tracker = experiment, tracker
        settings, site = (
            experiment.settings.model_dump(mode="json"),
            experiment.site.model_dump(mode="json"),
        )
        tracker.params({**flat(settings), **flat(site, "site.")})
        tracker.tags({"agentfly.settings_digest": experiment.settings.digest})
        if code := experiment.settings.code:
            tracker.tags({"agentfly.code_digest": hashing.digest(code)})

    def data(self, data: Pointer) -> None:
        """The dataset that is read."""
        self.tracker.dataset(self.experiment.name, self._where(data.uri), data.digest, "training")

    def data_version(self, version: str) -> None:
        """What DVC keeps of the dataset, or why it keeps none."""
        self.tracker.tags({"agentfly.dvc_dataset": version})

    def made(self, stages: Mapping[str, Sequence[Pointer]]) -> None:
        """The seconds of stages before the first step, and what their rounds measured:
        `warm_start/train/loss`.
        """
        for stage, artifacts in stages.items():
            measures = [measured(self.experiment.store, artifact) for artifact in artifacts]
            seconds = sum(each.seconds for each in measures)
            self.tracker.points({f"time/{stage}": seconds}, 0, measures[-1].time_ms)
            for number, each in enumerate(measures):
                metrics = {f"{stage}/{name}": value for name, value in each.metrics.items()}
                self.tracker.points(metrics, number, each.time_ms)

    def evaluation(self, evaluation: Evaluation, step: int) -> None:
        """Report a step's evaluations on held-out problems, further datasets included."""
        self.tracker.points(evaluation_metrics(evaluation), step, evaluation.time_ms)
        for other in evaluation.datasets.values():
            MlflowReporter.evaluation(self, other, step)

    def _where(self, uri: str) -> str:
        return f"{self.experiment.store.uri}/{uri}"


class RunReporter(MlflowReporter):
    """Reports a run to a tracker."""

    def __init__(self, run: Run, tracker: Tracker) -> None:
        super().__init__(run.experiment, tracker)
        self.run = run
        self._best = -1.0
        tracker.tags({"agentfly.run_folder": self._where(run.layout.uri), **_parents(run)})
        self.tags = tags_of(run.store, run.name)
        if self.tags.words or not self.tags.in_mlflow:
            tracker.tags({TAGS: str(self.tags)})

    def data(self, data: Pointer) -> None:
        """The dataset that the run reads, and its version, as the run wrote them down."""
        super().data(data)
        self.data_version(self.run.record["dataset_version"])

    def follow(self, run: Run) -> None:
        """Report the run as it is from now on, with an earlier last step."""
        self.run, self.experiment = run, run.experiment

    def step(self, step: int) -> None:
        """A step's metrics, and each few steps a table of its episodes; raises Damaged, see
        `metrics_of`.
        """
        point = metrics_of(self.run.store, self.run.layout.step(step))
        self.tracker.points(point["metrics"], step, point["time_ms"])
        if (
            step == self.run.settings.own_steps.start
            or step % self.run.settings.log_trajectories_every == 0
        ):
            self.tracker.table(
                "trajectories",
                step,
                lambda: episodes.table(episodes.read_step(self.run.store, self.run.name, step)),
            )

    def evaluation(self, evaluation: Evaluation, step: int) -> None:
        """How the policy of a step did; the best is judged on validation, or on test in a run that
        never validates.
        """
        super().evaluation(evaluation, step)
        validates = any(map(self.run.evaluates, self.run.settings.own_steps))
        if (
            evaluation.split == ("validation" if validates else "test")
            and evaluation.success > self._best
        ):
            self._best = evaluation.success
            self.tracker.tags(
                {"agentfly.best_policy": evaluation.policy, "agentfly.best_step": str(step)}
            )

    def end(self, policy: Pointer, summary: Summary, time_ms: int) -> None:
        """The final policy as a registered model version, the summary, and that the run is over."""
        lineage = {
            "agentfly.run": self.run.name,
            "agentfly.experiment": self.experiment.name,
            "agentfly.settings_digest": self.experiment.settings.digest,
            "agentfly.start_policy": self.run.start.digest,
            **_parents(self.run),
        }
        if base := base_of(self.run.store, policy):
            lineage["agentfly.base_uri"] = self._where(base.uri)
            lineage["agentfly.base_digest"] = base.digest
        model = f"agentfly-{self.experiment.name}"
        success = Success(summary["success_after"], self.run.record["dataset_digest"])
        self.tracker.register(model, self._where(policy.uri), policy.digest, success, lineage)
        self.tracker.tags(
            {"agentfly.last_policy": policy.digest, "agentfly.last_step": str(summary["steps"])}
        )
        if (tags := tags_of(self.run.store, self.run.name)) != self.tags:  # tagged meanwhile
            self.tags = tags
            self.tracker.tags({TAGS: str(tags)})
        self.tracker.summary(summary)
        self.tracker.finish("FINISHED", time_ms)

    def everything(self) -> None:
        """All that a finished run did, for a tracker that was not there to hear it."""
        run, settings = self.run, self.run.settings
        summary = run.finished
        assert summary is not None, f"{run.name} is not finished"
        self.data(run.store.artifact(StageKeys(settings).prepare().uri))
        self.made(stored_stages(run.experiment, run.parent))
        before = stored_evaluation(run.experiment, run.start, "test")
        before = with_stored_datasets(run.experiment, run.start, before)
        self.evaluation(before, settings.start_step)
        for step in settings.own_steps:
            self.step(step)
            with suppress(FileNotFoundError):  # a policy that was not evaluated
                policy = run.store.artifact(run.layout.step(step).policy)
                self.evaluation(stored_evaluation(run.experiment, policy, "validation"), step)
        policy = final_policy(run.store, run.name)
        after = stored_evaluation(run.experiment, policy, "test")
        self.evaluation(with_stored_datasets(run.experiment, policy, after), settings.steps)
        self.end(policy, summary, after.time_ms)

    def mlflow_run_id(self) -> str | None:
        """The id of the MLflow run, remembered with the run; None when MLflow does not answer in
        time.
        """
        self.tracker.flush()
        if self.tracker.run_id:
            self.run.link("mlflow_run_ids", self.tracker.run_id)
        return self.tracker.run_id


def evaluation_metrics(evaluation: Evaluation) -> dict[str, float]:
    """An evaluation by metric name: `evaluate/test/success`, `evaluate/test/pass_at_4`,
    `evaluate/test/kind/hard/success`, each with `_low` and `_high`.
    """
    success = Rate(evaluation.success, evaluation.interval, len(evaluation.solved))
    rates = {"success": success}
    rates |= {f"pass_at_{k}": rate for k, rate in evaluation.pass_at.items()}
    metrics = {"seconds": evaluation.seconds}
    for fact, tagged in evaluation.by.items():
        named = {f"{one_part(fact)}/{one_part(value)}": rate for value, rate in tagged.items()}
        rates |= {f"{name}/success": rate for name, rate in named.items()}
        metrics |= {f"{name}/problems": rate.problems for name, rate in named.items()}
    for name, rate in rates.items():
        low, high = rate.interval
        metrics |= {name: rate.share, f"{name}_low": low, f"{name}_high": high}
    return {f"evaluate/{evaluation.split}/{name}": value for name, value in metrics.items()}


def _parents(run: Run) -> dict[str, str]:
    parent, reference = run.parent, run.reference
    tags = (
        {"agentfly.parent": parent.run, "agentfly.parent_policy": parent.policy.digest}
        if parent
        else {}
    )
    return tags | ({"agentfly.reference_policy": reference.digest} if reference else {})
