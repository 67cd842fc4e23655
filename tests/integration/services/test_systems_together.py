"""The flow that joins published systems, with one round and few problems."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from mlflow import MlflowClient

from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.store.store import Store
from flows.local.prefect_server import use
from flows.own_flows import own_flow
from tests.support.project import ROOT, Project

pytest.importorskip("sklearn")
pytestmark = pytest.mark.long

NAME = "systems-together"
FEW = [
    "data.test=16",
    "rollout.problems=8",
    "rollout.branching={total: 4, init: 2, alpha: 1.0}",
    "update.mini_batches=1",
    "flows.systems_together.rounds=1",
    "flows.systems_together.plans=2",
    "flows.systems_together.competitions=1",
]
MADE = ("pages", "ramp_train", "ramp_val", "ramp_test")
Rows = Mapping[str, Mapping[str, float]]


@pytest.fixture(scope="module")
def root(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the flow has run."""
    project = Project.clone(tmp_path_factory.mktemp("together"), PREFECT_API_URL=prefect_api)
    for name in (NAME, "tptu", "mle"):
        shutil.copy(ROOT / f"conf/{name}.yaml", project.root / "conf")
    shutil.copytree(ROOT / "data/firms", project.root / "data/firms")
    # the experiment needs the pages before DVC makes them again
    (project.root / "data/firms/ramp_train.jsonl").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.root)
        for variable, value in {**project.env, "PREFECT_HOME": str(project.root)}.items():
            patch.setenv(variable, value)
        use(prefect_api)
        own_flow(NAME, "systems_together", FEW)
    return project.root


@pytest.fixture(scope="module")
def rows(root: Path) -> Rows:
    """The rows of the table in MLflow by policy."""
    mlflow = MlflowClient(f"sqlite:///{root}/.agentfly/mlflow.db")
    experiment = mlflow.get_experiment_by_name(NAME)
    (run,) = mlflow.search_runs([experiment.experiment_id])
    folder = mlflow.download_artifacts(run.info.run_id, "systems_together", str(root))
    table = json.loads(Path(folder, "step-000000.json").read_text())
    read = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    return {row.pop("policy"): row for row in read}


def test_dvc_makes_the_bytes_of_the_repository(root: Path) -> None:
    for name in MADE:
        file = f"data/firms/{name}.jsonl"
        assert (root / file).read_bytes() == (ROOT / file).read_bytes()


def test_an_update_trains_gated_episodes_with_forks(root: Path, rows: Rows) -> None:
    *_, trained = rows
    step = step_layout(Store.at(str(root), root), trained.removeprefix("run:"), 1)
    played = json.loads((root / step.rollout(0) / "metrics.json").read_text())["metrics"]
    # 4 episodes of each of 8 problems
    assert played["gate/answer"] > 0 and played["gate/call"] > 0
    assert played["gate/answer"] + played["gate/call"] + played.get("gate/own", 0) == 32
    # 2 first episodes of each problem, each of which may fork once
    assert 0 < played["branching/forks"] <= 16
    assert json.loads((root / step.metrics).read_text())["metrics"]["train/tokens"] > 0


def test_the_oracle_solves_all_that_is_held_out(rows: Rows) -> None:
    oracle = rows["oracle"]
    assert (oracle["own"], oracle["program"], oracle["plans"]) == (1.0, 1.0, 1.0)
    assert (oracle["own calls"], oracle["program calls"], oracle["competitions calls"]) == (1, 1, 1)
    assert oracle["competitions"] > 0
    assert oracle["gated"] is None


def test_one_table_in_mlflow_compares_both_policies(rows: Rows) -> None:
    assert len(rows) == 3
    _, *policies = rows.values()
    for row in policies:
        # the same agent, in process and through the gateway
        assert (row["program"], row["program calls"]) == (row["own"], row["own calls"])
        # the gate saves the searches of memorised codes
        assert row["gated"] >= 0.5 and 0 < row["gated calls"] < row["own calls"]
        # nothing taught this model plans or pipelines
        assert (row["plans"], row["competitions"]) == (0.0, 0.0)
