"""Steps of a run that reaches its deadline before the last step."""

import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.experiment import keys
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.loop import training
from agentfly_core.pipeline.loop.stages import Stages
from agentfly_core.pipeline.loop.training import Training
from agentfly_core.pipeline.retention import made
from agentfly_core.pipeline.stages import policy_update
from agentfly_core.runs.run import Run, opened
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.training.checkpointing import AsyncCheckpointer
from tests.support.experiments import experiment
from tests.support.stages import stages_with

NOW = 0.0


class Scripted:
    """A learner that keeps only the label of its state; `updates` lists repeated steps."""

    stages: Stages

    def __init__(self) -> None:
        self.state = ""
        self.updates: list[str] = []

    def label(self) -> str:
        return self.state

    def update(self, job: Any, watch: object) -> dict[str, float]:
        self.state = job.end
        self.updates.append(job.end)
        return {}

    def save_state(self, folder: Path) -> Callable[[], object]:
        return lambda: (folder / "learner.json").write_text(f'"{self.state}"')


def publish(run: Run, target: ArtifactKey) -> Artifact:
    with run.store.publish(target) as folder, measuring(folder):
        (folder / "model.safetensors").write_text(target.key)
    return run.store.artifact(target.uri)


def step_target(run: Run, policy: Artifact, scored: Artifact, step: int) -> ArtifactKey:
    return StageKeys(run.settings).policy(run.name, policy, scored, step)


@pytest.fixture
def learner(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Steps that play nothing and a learner for them; no states are kept between them."""
    learner = Scripted()

    def played(_: Stages, run: Run, *given: Any) -> Any:
        step = given[-1]
        return [], publish(run, ArtifactKey(run.layout.step(step).scored, "score", str(step), {}))

    def update(
        run: Run, _: object, policy: Artifact, scored: Artifact, step: int, memory: object
    ) -> Artifact:
        target = step_target(run, policy, scored, step)
        if artifact := made(run, target, step):
            return artifact
        learner.state = target.key
        return publish(run, target)

    monkeypatch.setattr(training, "episodes", played)
    nothing: Any = lambda *_: None  # noqa: E731
    learner.stages = stages_with(update=update, log_step=nothing)
    return learner


def trained_until(run: Run, learner: Scripted, until: float) -> tuple[Artifact, Run]:
    saving = AsyncCheckpointer(learner)  # type: ignore[arg-type]
    services: Any = SimpleNamespace(player=SimpleNamespace(rest=lambda: None), learner=saving)
    start = publish(run, ArtifactKey("artifacts/model/tiny", "model", "0", {}))
    run.remember_start(start)
    training = Training(run, Path("logs"), learner.stages, until)
    return training.improved(services, start, start)


def settings(steps: int) -> dict[str, Any]:
    return {"steps": steps, "update": {"learner_every": 5}}


def test_the_step_at_the_deadline_is_the_last_and_is_recorded(
    tmp_path: Path, learner: Scripted
) -> None:
    with opened(experiment(tmp_path, **settings(3)), "demo") as run:
        policy, ended = trained_until(run, learner, NOW)
        assert policy.uri == run.layout.step(1).policy
        assert ended.settings.steps == 1
        record = run.record
        assert (record["settings"]["steps"], record["planned_steps"]) == (1, 3)


def test_the_last_step_before_the_deadline_keeps_its_state(
    tmp_path: Path, learner: Scripted
) -> None:
    with opened(experiment(tmp_path, **settings(3)), "demo") as run:
        policy, ended = trained_until(run, learner, NOW)
        scored = run.store.artifact(run.layout.step(1).scored)
        target = step_target(run, run.start, scored, 1)
        assert run.store.find(keys.learner(target))
        assert made(ended, target, 1) == policy
    learner.state = "another run's"
    with opened(experiment(tmp_path, **settings(1)), "demo") as run:
        assert trained_until(run, learner, math.inf)[0] == policy
    assert learner.state == "another run's"


def test_a_lost_state_is_computed_again_at_the_deadline(
    tmp_path: Path, learner: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SimpleNamespace(end="")

    def step_job(run: Run, _: object, __: object, target: ArtifactKey, step: int) -> Any:
        job.end = target.key
        return job

    monkeypatch.setattr(policy_update, "step_job", step_job)
    with opened(experiment(tmp_path, **settings(3)), "demo") as run:
        trained_until(run, learner, math.inf)
    for step in (3, 2):
        run.store.remove(run.layout.step(step).policy)
        run.store.remove(run.layout.step(step).learner)
    learner.state = ""
    with opened(experiment(tmp_path, **settings(3)), "demo") as run:
        policy, _ = trained_until(run, learner, NOW)
        key = run.store.artifact(policy.uri).key
        assert learner.updates == [key.key]
        assert run.store.find(keys.learner(key))


def test_a_run_within_its_time_keeps_its_steps(tmp_path: Path, learner: Scripted) -> None:
    with opened(experiment(tmp_path, **settings(2)), "demo") as run:
        policy, ended = trained_until(run, learner, math.inf)
        assert (policy.uri, ended) == (run.layout.step(2).policy, run)
        assert "planned_steps" not in run.record
