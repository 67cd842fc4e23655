"""What a run tells MLflow, and when; all of it is read from the run's files, so that a continue can tell it again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from agentfly_core import reading, slots
from agentfly_core.experiment import flat
from agentfly_core.run import Run, final_policy
from agentfly_core.store import Artifact
from agentfly_core.summary import Evaluation, stored_evaluation
from agentfly_core.tracking import Tracker
from agentfly_core.versioning import Unversioned, Version


class Teller:
    """Tells a tracker what a run did; every method returns at once, and may be called again for the same thing."""

    def __init__(self, run: Run, tracker: Tracker) -> None:
        self.run, self.tracker = run, tracker
        self._best = -1.0
        science, site = run.science.model_dump(mode="json"), run.lab.site.model_dump(mode="json")
        tracker.params({**flat(science), **flat(site, "site.")})
        tracker.tags({"agentfly.science_digest": run.science.digest, "agentfly.run_folder": self._where(run.uri)})
        if run.parent:
            tracker.tags({"agentfly.parent": run.parent.run, "agentfly.parent_policy": run.parent.policy.digest})

    def data(self, data: Artifact) -> None:
        """The dataset that the run reads."""
        self.tracker.dataset(self.run.lab.experiment, self._where(data.uri), data.digest, "training")

    def data_version(self, version: Version | Unversioned) -> None:
        """What DVC keeps of the dataset, or why it keeps none."""
        told = version.md5 if isinstance(version, Version) else f"none: {version.reason}"
        self.tracker.tags({"agentfly.dvc_dataset": told})

    def step(self, step: int) -> None:
        """A step's metrics, and each few steps a table of its episodes."""
        here = slots.of_step(self.run.name, step)
        found = self.run.store.read_json(f"{here}/metrics.json")
        self.tracker.points(found["metrics"], step, found["time_ms"])
        if step == 1 or step % self.run.science.log_trajectories_every == 0:
            self.tracker.table(
                "trajectories", step, lambda: reading.table(reading.read_step(self.run.store, self.run.name, step))
            )

    def evaluation(self, evaluation: Evaluation, step: int) -> None:
        """How the policy of a step did on held-out problems."""
        low, high = evaluation.interval
        name = f"evaluate/{evaluation.split}"
        metrics = {f"{name}/success": evaluation.success, f"{name}/success_low": low, f"{name}/success_high": high}
        self.tracker.points(metrics, step, evaluation.time_ms)
        if evaluation.split == "validation" and evaluation.success > self._best:
            self._best = evaluation.success
            self.tracker.tags({"agentfly.best_policy": evaluation.policy, "agentfly.best_step": str(step)})

    def end(self, policy: Artifact, summary: dict[str, Any], time_ms: int) -> None:
        """The final policy as a registered model version, the summary, and that the run is over."""
        lineage = {
            "agentfly.run": self.run.name,
            "agentfly.experiment": self.run.lab.experiment,
            "agentfly.science_digest": self.run.science.digest,
            "agentfly.start_policy": self.run.start.digest,
        }
        success = summary["success_after"]
        self.tracker.register(
            f"agentfly-{self.run.lab.experiment}", self._where(policy.uri), policy.digest, success, lineage
        )
        self.tracker.tags({"agentfly.last_policy": policy.digest, "agentfly.last_step": str(summary["steps"])})
        self.tracker.finish("FINISHED", time_ms)

    def everything(self) -> None:
        """All that a finished run did, for a tracker that was not there to hear it."""
        run, science = self.run, self.run.science
        summary = run.finished
        assert summary is not None, f"{run.name} is not finished"
        self.data(run.store.artifact(slots.prepare(science).uri))
        self.evaluation(stored_evaluation(run.lab, run.start, "test"), 0)
        for step in range(1, science.steps + 1):
            self.step(step)
            with suppress(FileNotFoundError):  # a policy that was not evaluated
                policy = run.store.artifact(f"{slots.of_step(run.name, step)}/policy")
                self.evaluation(stored_evaluation(run.lab, policy, "validation"), step)
        policy = final_policy(run.store, run.name)
        after = stored_evaluation(run.lab, policy, "test")
        self.evaluation(after, science.steps)
        self.end(policy, summary, after.time_ms)

    def mlflow_run_id(self) -> str | None:
        """The id of the MLflow run, remembered with the run; None when MLflow does not answer in time."""
        self.tracker.flush()
        if self.tracker.run_id:
            self.run.link("mlflow_run_ids", self.tracker.run_id)
        return self.tracker.run_id

    def _where(self, uri: str) -> str:
        return f"{self.run.store.uri}/{uri}"
