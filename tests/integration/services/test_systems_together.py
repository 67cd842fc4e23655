"""The flow that joins published systems, with a model that has learned little."""

import json
import shutil
from pathlib import Path

import pytest
from mlflow import MlflowClient

from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.store.store import Store
from flows.local.prefect_server import use
from flows.own_flows import own_flow
from tests.support.project import ROOT, Project

NAME = "systems-together"
FEW = (
    "warm_start={demonstrations: 'agentfly_core.recipes.systems_together.demonstrations:both_ways',"
    " settings: {at_once: 'Answer at once, with one word or number.'}, episodes: 512, rounds: 2,"
    " batch: 8, learning_rate: 2.0e-3}",
    "data.test=16",
    "rollout.problems=2",
    "rollout.branching={total: 4, init: 2, alpha: 1.0}",
    "update.mini_batches=1",
)
SIZES = {"rounds": 1, "fills": 8, "plans": 2, "competitions": 1, "overrides": [*FEW]}
AGENTS = ("", "gated ", "program ")


@pytest.fixture(scope="module")
def root(prefect_api: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project in which the flow has run."""
    project = Project.clone(tmp_path_factory.mktemp("together"), PREFECT_API_URL=prefect_api)
    for name in (NAME, "tptu", "mle"):
        shutil.copy(ROOT / f"conf/{name}.yaml", project.root / "conf")
    shutil.copytree(ROOT / "data/firms", project.root / "data/firms")
    for made in (project.root / "data/firms").glob("ramp_*"):
        made.unlink()
    changes = [f"flows.systems_together.{key}={json.dumps(value)}" for key, value in SIZES.items()]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(project.root)
        for variable, value in {**project.env, "PREFECT_HOME": str(project.root)}.items():
            patch.setenv(variable, value)
        use(prefect_api)
        own_flow(NAME, "systems_together", changes)
    return project.root


def metrics_of(root: Path) -> dict[str, float]:
    """The metrics of the only step."""
    store = Store.at(str(root), root)
    content = store.read_json(step_layout(store, f"{NAME}-1", 1).metrics)
    assert content
    return dict(content["metrics"])


def test_dvc_makes_the_bytes_of_the_repository(root: Path) -> None:
    for path in (ROOT / "data/firms").glob("*.jsonl"):
        assert (root / "data/firms" / path.name).read_bytes() == path.read_bytes()


def test_a_step_has_gated_episodes_with_forks_and_an_update(root: Path) -> None:
    metrics = metrics_of(root)
    # two problems of two first episodes, of which each may fork once
    assert metrics["branching/forks"] <= 4
    assert metrics["branching/executed_calls"] > 0
    assert sum(metrics.get(f"gate/{one}", 0) for one in ("answer", "call", "own")) >= 4
    assert metrics["train/tokens"] > 0


def test_one_table_in_mlflow_compares_both_policies(root: Path) -> None:
    mlflow = MlflowClient(f"sqlite:///{root}/.agentfly/mlflow.db")
    experiment = mlflow.get_experiment_by_name(NAME)
    (run,) = mlflow.search_runs([experiment.experiment_id])
    folder = mlflow.download_artifacts(run.info.run_id, "systems_together", str(root))
    table = json.loads(Path(folder, "step-000000.json").read_text())
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["data"]]
    assert [row["policy"] for row in rows] == [f"{NAME}-0", f"{NAME}-1"]
    of_agents = {f"{one}{what}" for one in AGENTS for what in ("fills", "searches")}
    assert rows[0].keys() == {"policy", *of_agents, "plans", "competitions"}
    # nothing taught this model plans or pipelines
    assert [(row["plans"], row["competitions"]) for row in rows] == [(0.0, 0.0)] * 2
