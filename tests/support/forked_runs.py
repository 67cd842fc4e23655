"""Finished steps of a run, and forks of the run."""

from typing import Any

from agentfly_core.experiment import keys
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.records import ledger
from agentfly_core.records.ledger import LedgerRow
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.store.store import Store
from tests.support.experiments import experiment

PROBLEMS = {1: 3, 2: 1, 3: 2, 4: 5}


def publish(store: Store, target: ArtifactKey) -> Artifact:
    with store.publish(target) as folder, measuring(folder):
        (folder / "model.safetensors").write_text(target.key)
    return store.artifact(target.uri)


def scored(run: Run, step: int) -> Artifact:
    """Publish a scored step of PROBLEMS problems."""
    uri = run.layout.step(step).scored
    rows = [LedgerRow(step, "single", f"p{n}", 1, 1, 0.0, "used") for n in range(PROBLEMS[step])]
    with run.store.publish(ArtifactKey(uri, "score", str(step), {})) as folder, measuring(folder):
        ledger.write(folder, rows)
    return run.store.artifact(uri)


def step(run: Run, number: int) -> Artifact:
    """Publish a finished step with its learner state."""
    before = policy_of(run.store, run.name, number - 1)
    target = StageKeys(run.settings).policy(run.name, before, scored(run, number), number)
    publish(run.store, keys.learner(target))
    return publish(run.store, target)


def fork_of(place: Experiment, run: str = "old", at: int = 2, **changed: Any) -> Any:
    """An experiment of a fork in the same store."""
    settings: dict[str, Any] = {"steps": 4, "fork": {"run": run, "step": at}} | changed
    made = experiment(place.store.root.parent, **settings)
    return Experiment.of(made.name, made.settings, {}, made.site, place.store)
