"""Finished runs whose held-out outcomes are given, without a model or a service."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentfly_core.config import loading
from agentfly_core.config.experiment import Adapter
from agentfly_core.config.site import Site
from agentfly_core.experiment.context import ExperimentContext, policy_of, resolve
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.models.adapter_artifact import remember
from agentfly_core.records import dataset, ledger
from agentfly_core.records.parquet import SCORES, write_scores
from agentfly_core.records.trajectory import Unscored
from agentfly_core.runs.metrics import point
from agentfly_core.runs.run import Run, opened
from agentfly_core.store.store import ArtifactKey, Pointer, Store
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


def experiment(store: Store, *overrides: str) -> ExperimentContext:
    """The experiment with these settings; its folder is the working directory."""
    read = loading.read("tiny", overrides)
    return ExperimentContext(read.name, resolve(read.science), read.origin, Site(), store)


def finished(store: Store, name: str, solved: str, *overrides: str) -> None:
    """A run of two steps that solved the eight test problems as `solved` says: "11010011"; a
    problem of "?" has no scored episode.
    """
    context = experiment(store, *overrides)
    with opened(context, name) as run:
        data = published(context, StageKeys(context.science).prepare(), _prepared(context))
        run.remember_data(data, "none")
        for number in context.science.own_steps:
            _step(run, number)
        policy = store.artifact(run.layout.step(context.science.steps).policy)
        run.remember_start(policy)
        evaluated(context, policy, data, "test", lambda i: ("reply", _reward(solved[i])))
        summary: Any = {**SUMMARY, "run": name, "steps": context.science.steps}
        store.write_json(run.layout.summary, as_json(summary))


def on_further(store: Store, run: str, name: str, solved: str, *overrides: str) -> None:
    """The last policy of a finished run on one of its evaluate.datasets, too."""
    context = experiment(store, *overrides)
    there = context.on(context.science.on(context.science.evaluate.datasets[name]))
    data = published(there, StageKeys(there.science).prepare(), _prepared(there))
    policy = policy_of(store, run, context.science.steps)
    evaluated(there, policy, data, "test", lambda i: ("reply", _reward(solved[i])))


def scored_by_another(store: Store, run: str, *overrides: str) -> None:
    """The evaluation of a run's last policy on test, scored once more by a run of other rewards."""
    context = experiment(store, *overrides)
    data = store.artifact(StageKeys(context.science).prepare().uri)
    policy = policy_of(store, run, context.science.steps)
    folder = (
        StageKeys(context.science).evaluation(policy, data, "test", 0, {}).uri.rpartition("/")[0]
    )
    scored = ArtifactKey(f"{folder}/scored", "score", "by other rewards", {})
    published(context, scored, lambda folder: write_scores(folder / SCORES, []))


def _prepared(context: ExperimentContext) -> Any:
    return lambda folder: dataset.prepare(
        context.science.data, context.science.data_seed, folder, folder / "quarantine.json"
    )


def _reward(mark: str) -> float | Unscored:
    return Unscored("no answer in time") if mark == "?" else float(mark)


def _step(run: Run, number: int) -> None:
    """A step of 8 episodes of 10 tokens, 5 of 10 seconds at work, half of which (and more with
    each step) are solved.
    """
    layout = run.layout.step(number)
    key = f"{run.name} {number}"
    rows: Sequence[ledger.LedgerRow] = [ledger.LedgerRow(number, "a-000", 8, 8, 0.5, "used")]
    scored = ArtifactKey(layout.scored, "score", f"scored {key}", {})
    published(run.context, scored, lambda folder: ledger.write(folder, rows))
    policy = ArtifactKey(layout.policy, "update", f"policy {key}", {})
    published(run.context, policy, lambda folder: _weights(folder, key, run.science.adapter))
    measured = {
        "agent/rollout/success": 0.4 + 0.1 * number,
        "agent/rollout/avg_sampled_tokens": 10.0,
        "time/rollout": 3.0,
        "time/score": 0.5,
        "time/update": 1.5,
    }
    run.store.write_json(layout.metrics, point(number, measured, 10_000 * number))


def _weights(folder: Path, key: str, adapter: Adapter | None) -> None:
    (folder / "weights").write_text(key)
    if adapter:
        remember(folder, BASE, adapter)
