"""Fixtures of the fault tests: a program that runs mortal commands, and one undisturbed run."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.killed_commands import RUN, TRAIN, Lives, Whole
from tests.support.mlflow_store import new_store


@pytest.fixture(scope="session")
def lives(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    """Runs commands with the sampler in process, at one Prefect server and one MLflow store."""
    home = tmp_path_factory.mktemp("home")
    settings = {
        "PREFECT_API_URL": prefect_api,
        "PREFECT_HOME": str(home),
        "MLFLOW_TRACKING_URI": new_store(home),
        "AGENTFLY_SAMPLER": "transformers",
        "AGENTFLY_WORKERS": "0",
        "DS_ACCELERATOR": "cpu",
    }
    program = Lives({**os.environ, **settings})
    yield program
    program.close()


@pytest.fixture
def begun(whole: Whole, tmp_path: Path) -> Path:
    """A folder with the artifacts from before the first step."""
    shutil.copytree(whole.folder / "artifacts", tmp_path / "artifacts")
    return tmp_path


@pytest.fixture
def at_step_2(whole: Whole, begun: Path) -> Path:
    """A folder with the run as it was when step 2 had ended."""
    shutil.copytree(whole.folder / RUN, begun / RUN)
    for name in ("steps/000003", "ledger"):
        shutil.rmtree(begun / RUN / name)
    (begun / RUN / "summary.json").unlink()
    return begun


@pytest.fixture(scope="session")
def whole(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The uninterrupted run of tiny.yaml, with an MLflow store of its own."""
    folder = tmp_path_factory.mktemp("whole")
    end = lives.run(folder, *TRAIN, env={"MLFLOW_TRACKING_URI": new_store(folder)})
    assert end.code == 0, end.printed
    return Whole(folder, end)
