"""A run is trained again: inputs from other runs, code, and compared artifacts."""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from agentfly_core.config.experiment import Adapter
from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment import keys
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.models import adapter_artifact
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.run import Run, opened
from agentfly_core.runs.sharing import copy_origins
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import as_json
from flows.verification import differences, require_repeatable
from tests.support.experiments import SUMMARY, experiment
from tests.support.own_code import author_folder, edit, here


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from author_folder(tmp_path, monkeypatch)


def publish(store: Store, uri: str, base: Artifact | None = None) -> Artifact:
    """Publish a policy, on a base model for an adapter."""
    with store.publish(ArtifactKey(uri, "update", uri, {})) as folder:
        (folder / "model.safetensors").write_text(uri)
        if base:
            adapter_artifact.remember(folder, base, Adapter(rank=2, alpha=4))
    return store.artifact(uri)


def test_adapters_of_other_runs_come_with_their_models(
    tmp_path: Path,
) -> None:
    store = experiment(tmp_path).store
    model = publish(store, "artifacts/model/1f2e")
    start = publish(store, "runs/base/steps/000002/policy", model)
    near = publish(store, "runs/near/steps/000001/policy", model)
    kl = {"use": "loss", "reference": "run:near@1"}
    grpo = {"use": "agentfly_core.algorithms.grpo:GRPO", "kl": kl}
    with opened(experiment(tmp_path, model="run:base@2", algorithm=grpo), "demo") as run:
        rebuilt = Store.at(str(tmp_path / "again"), tmp_path / "cache")
        copy_origins(run.record, store, rebuilt)
    assert of_run(rebuilt, RunPolicy("base", 2), "model").policy == start
    assert of_run(rebuilt, RunPolicy("near", 1), "algorithm.kl.reference").policy == near
    assert rebuilt.artifact(model.uri) == model


def finish(run: Run) -> None:
    run.store.write_json(run.layout.summary, as_json(SUMMARY))


def test_a_run_with_edited_code_is_refused_with_its_names(project: Path) -> None:
    (project / "prices.csv").write_text("tea,3\n")
    with opened(here(project, code_files=["prices.csv"]), "demo") as run:
        finish(run)
    require_repeatable(run.store, run.record)
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    (project / "prices.csv").write_text("tea,4\n")
    with pytest.raises(ValueError, match=r"own_prices, prices\.csv changed after the run demo"):
        require_repeatable(run.store, run.record)


def test_a_run_that_is_not_finished_is_refused(tmp_path: Path) -> None:
    with (
        opened(experiment(tmp_path), "demo") as run,
        pytest.raises(ValueError, match="'demo' is not finished"),
    ):
        require_repeatable(run.store, run.record)


@pytest.mark.parametrize("facts", [{"accepted_code": [{"step": 1}]}, {"frozen": {"judge": "9f"}}])
def test_a_run_without_one_code_or_policy_is_refused(
    tmp_path: Path, facts: dict[str, object]
) -> None:
    with opened(experiment(tmp_path), "demo") as run:
        finish(run)
    record = cast(RunRecord, {**run.record, **facts})
    with pytest.raises(ValueError, match=r"'demo' .*--accept-code"):
        require_repeatable(run.store, record)


def test_a_run_of_other_stages_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(experiment(tmp_path), "demo") as run:
        finish(run)
    monkeypatch.setattr(keys, "VERSIONS", {**keys.VERSIONS, "prepare": 7})
    with pytest.raises(ValueError, match=r" stage versions .*--new"):
        require_repeatable(run.store, run.record)


URI = "runs/demo/steps/000001/rollout-000"


def written(store: Store, uri: str, **files: str) -> None:
    with store.publish(ArtifactKey(uri, "rollout", "9f2c", {})) as folder:
        for name, text in files.items():
            (folder / f"{name}.json").write_text(text)


@pytest.mark.parametrize(
    ("first", "difference"),
    [
        ({"episodes": "[1]", "scores": "[2]", "metrics": '{"seconds": 9}'}, ""),
        ({"episodes": "[7]", "scores": "[2]"}, "differs in episodes.json"),
        ({"episodes": "[1]"}, "differs in scores.json"),
        ({}, "is not in the first store"),
    ],
)
def test_artifacts_that_differ_only_in_times_agree(
    tmp_path: Path, first: dict[str, str], difference: str
) -> None:
    store = Store.at(str(tmp_path / "store"), tmp_path / "cache")
    again = Store.at(str(tmp_path / "again"), tmp_path / "cache")
    if first:
        written(store, URI, **first)
    written(again, URI, episodes="[1]", scores="[2]", metrics='{"seconds": 3}')
    assert differences(store, again, "demo") == {URI: difference}


def test_learner_states_and_other_runs_are_not_compared(tmp_path: Path) -> None:
    store = Store.at(str(tmp_path / "store"), tmp_path / "cache")
    again = Store.at(str(tmp_path / "again"), tmp_path / "cache")
    for uri in ("runs/demo/steps/000001/learner", "runs/base/steps/000001/policy"):
        written(again, uri, state="[1]")
    assert differences(store, again, "demo") == {}
