"""Finished runs with given held-out outcomes, without a model or a service."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly_core.config import loading
from agentfly_core.config.experiment import Adapter
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.models.adapter_artifact import remember
from agentfly_core.records import dataset, ledger
from agentfly_core.records.trajectory import Unscored
from agentfly_core.runs.metrics import point
from agentfly_core.runs.run import Run, opened
from agentfly_core.store.artifact import ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import as_json
from tests.support.experiments import SUMMARY
from tests.support.judged_night import evaluated, published

TINY = """
model: nano:calculator
data: {use: "tests.support.problems:clean", train: 64, validation: 4, test: 8, seed: 0}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
steps: 2
"""
BASE = Pointer("artifacts/model/1f2e3d4c", "9f2ce1b7")
"""The model that adapters of these runs stand on."""


def project(folder: Path) -> Store:
    """A folder with the experiment tiny.yaml, and its store."""
    (folder / "conf").mkdir()
    (folder / "conf" / "tiny.yaml").write_text(TINY)
    return Store.at(str(folder), folder / ".agentfly/cache")


def experiment_with(store: Store, *overrides: str) -> Experiment:
    """The experiment with these settings; its folder is the working directory."""
    read = loading.read("tiny", overrides)
    return Experiment.of(read.name, read.settings, read.origin, Site(), store)


def finished(store: Store, name: str, solved: str, *overrides: str) -> None:
    """A run of two steps with the outcomes `solved` on the eight test problems, as in "11010011";
    "?" is a problem without a scored episode.
    """
    experiment = experiment_with(store, *overrides)
    with opened(experiment, name) as run:
        data = published(
            experiment, StageKeys(experiment.settings).prepare(), _prepared(experiment)
        )
        run.remember_data(data, "none")
        for number in experiment.settings.own_steps:
            _step(run, number)
        policy = store.artifact(run.layout.step(experiment.settings.steps).policy)
        run.remember_start(policy)
        evaluated(experiment, policy, data, "test", lambda i: ("reply", _reward(solved[i])))
        summary: Any = {**SUMMARY, "run": name, "steps": experiment.settings.steps}
        store.write_json(run.layout.summary, as_json(summary))


def on_further(store: Store, run: str, name: str, solved: str, *overrides: str) -> None:
    """The last policy of a finished run on one of its evaluate.datasets, too."""
    experiment = experiment_with(store, *overrides)
    there = experiment.on(experiment.settings.on(experiment.settings.evaluate.datasets[name]))
    data = published(there, StageKeys(there.settings).prepare(), _prepared(there))
    policy = policy_of(store, run, experiment.settings.steps)
    evaluated(there, policy, data, "test", lambda i: ("reply", _reward(solved[i])))


def validated(store: Store, run: str, step: int, *overrides: str) -> None:
    """The policy of a step solves every validation problem."""
    experiment = experiment_with(store, *overrides)
    data = store.artifact(StageKeys(experiment.settings).prepare().uri)
    evaluated(experiment, policy_of(store, run, step), data, "validation", lambda i: ("reply", 1.0))


def scored_by_another(store: Store, run: str) -> None:
    """The evaluation of a run's last policy on test, scored once more by a run of another weight,
    for which no problem is solved.
    """
    experiment = experiment_with(store, "rewards={'agentfly_core.rewards.exact:exact': 0.5}")
    data = store.artifact(StageKeys(experiment.settings).prepare().uri)
    policy = store.artifact(RunLayout(run).step(experiment.settings.steps).policy)
    evaluated(experiment, policy, data, "test", lambda i: ("reply", 0.0))


def _prepared(experiment: Experiment) -> Any:
    return lambda folder: dataset.prepare(
        experiment.settings.data, experiment.settings.data_seed, folder, folder / "quarantine.json"
    )


def _reward(mark: str) -> float | Unscored:
    return Unscored("no answer in time") if mark == "?" else float(mark)


def _step(run: Run, number: int) -> None:
    """A step of 8 episodes of 10 tokens, 5 of 10 seconds at work, half of which (and more with
    each step) are solved.
    """
    layout = run.layout.step(number)
    key = f"{run.name} {number}"
    rows: Sequence[ledger.LedgerRow] = [
        ledger.LedgerRow(number, "single", "a-000", 8, 8, 0.5, "used")
    ]
    scored = ArtifactKey(layout.scored, "score", f"scored {key}", {})
    published(run.experiment, scored, lambda folder: ledger.write(folder, rows))
    policy = ArtifactKey(layout.policy, "update", f"policy {key}", {})
    published(run.experiment, policy, lambda folder: _weights(folder, key, run.settings.adapter))
    measured = {
        "rollout/success": 0.4 + 0.1 * number,
        "rollout/avg_sampled_tokens": 10.0,
        "time/rollout": 3.0,
        "time/score": 0.5,
        "time/update": 1.5,
    }
    run.store.write_json(layout.metrics, point(number, measured, 10_000 * number))


def _weights(folder: Path, key: str, adapter: Adapter | None) -> None:
    (folder / "weights").write_text(key)
    if adapter:
        remember(folder, BASE, adapter)
