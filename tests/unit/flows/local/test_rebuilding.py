"""What a run needs to be built again in another store: policies of other runs, and the code of its
author.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.context import of_run
from agentfly_core.runs.run import opened
from agentfly_core.store.store import Artifact, ArtifactKey, Store
from agentfly_core.system.files import write_json
from flows.local.rebuilding import copy_origins, require_same_code
from tests.support.experiments import context
from tests.support.own_code import author_folder, edit, here


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from author_folder(tmp_path, monkeypatch)


def publish(store: Store, uri: str, base: Artifact | None = None) -> Artifact:
    """A policy, which stands on a base where it is an adapter."""
    with store.publish(ArtifactKey(uri, "update", uri, {})) as folder:
        (folder / "model.safetensors").write_text(uri)
        if base:
            write_json(folder / "adapter.json", {"base": {"uri": base.uri, "digest": base.digest}})
    return store.artifact(uri)


def test_adapters_of_other_runs_come_with_their_models_and_say_whose_they_are(
    tmp_path: Path,
) -> None:
    store = context(tmp_path).store
    model = publish(store, "artifacts/model/1f2e")
    start = publish(store, "runs/base/steps/000002/policy", model)
    near = publish(store, "runs/near/steps/000001/policy", model)
    kl = {"use": "loss", "reference": "run:near@1"}
    grpo = {"use": "agentfly_core.algorithms.grpo:GRPO", "kl": kl}
    with opened(context(tmp_path, model="run:base@2", algorithm=grpo), "demo") as run:
        rebuilt = Store.at(str(tmp_path / "again"), tmp_path / "cache")
        copy_origins(run.record, store, rebuilt)
    assert of_run(rebuilt, RunPolicy("base", 2), "model").policy == start
    assert of_run(rebuilt, RunPolicy("near", 1), "algorithm.kl.reference").policy == near
    assert rebuilt.artifact(model.uri) == model


def test_a_run_of_other_code_than_there_is_now_is_not_built_and_the_files_are_named(
    project: Path,
) -> None:
    (project / "prices.csv").write_text("tea,3\n")
    with opened(here(project, code_files=["prices.csv"]), "demo") as run:
        require_same_code(run.record)
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    (project / "prices.csv").write_text("tea,4\n")
    with pytest.raises(ValueError, match=r"than there is now:\n  own_prices\.py\n  prices\.csv"):
        require_same_code(run.record)
