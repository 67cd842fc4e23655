"""What a run needs to be built again in another store: policies of other runs, and the code of its
author as it was.
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
from flows.local.rebuilding import copy_origins, with_own_code
from tests.support.experiments import context
from tests.support.own_code import PROJECT, author_folder, edit, here


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


def test_a_run_is_built_with_its_authors_code_as_it_was_and_all_else_that_lies_beside(
    project: Path,
) -> None:
    (project / "prices.csv").write_text("tea,3\n")
    with opened(here(project, code_files=["prices.csv"]), "demo") as run:
        pass
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    folder = with_own_code(run.record, run.store, project, project / ".again")
    assert (folder / "own_prices.py").read_text() == PROJECT["own_prices"]
    assert (folder / "prices.csv").read_text() == "tea,3\n"
    (project / "prices.csv").write_text("tea,4\n")
    with pytest.raises(ValueError, match=r"prices\.csv, in code_files, is not what it was"):
        with_own_code(run.record, run.store, project, project / ".again")


def test_a_run_without_code_of_its_authors_is_built_where_agentflys_is(tmp_path: Path) -> None:
    use = "agentfly_core.datasets.arithmetic:arithmetic"
    with opened(context(tmp_path, data={"use": use, "train": 8, "test": 4}), "demo") as run:
        pass
    assert with_own_code(run.record, run.store, tmp_path, tmp_path / ".again") == tmp_path
