"""MLflow's database is created completely or not at all, and its errors are raised."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import PERMISSION_DENIED

from agentfly_core.runs.tracking.mlflow_client import DATASET, DIGEST, MlflowRun, MlflowStore
from agentfly_core.system.supervisor import die_with_parent
from tests.support.waiting import until

CONNECT = (
    "import sys; from pathlib import Path;"
    "from agentfly_core.runs.tracking.mlflow_client import MlflowStore;"
    "MlflowStore.choose(Path(sys.argv[1])).connect()"
)


def test_kill_9_during_its_creation_leaves_no_database(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    process = subprocess.Popen(
        [sys.executable, "-c", CONNECT, str(tmp_path)], preexec_fn=die_with_parent, text=True
    )
    until(lambda: any(path.stat().st_size for path in tmp_path.glob("mlflow-*/mlflow.db")), process)
    process.kill()
    process.wait()
    assert not Path(tmp_path, "mlflow.db").exists()

    store = MlflowStore.choose(tmp_path)
    assert [one.name for one in store.connect().search_experiments()] == ["Default"]


@pytest.mark.parametrize("call", ["create_experiment", "create_registered_model"])
def test_another_refusal_than_of_an_existing_name_is_raised(call, tmp_path, monkeypatch):
    store = MlflowStore.choose(tmp_path, f"sqlite:///{tmp_path}/mlflow.db")
    lineage = {DIGEST: "cd", DATASET: "ab"}
    for uid in ("1", "2"):  # the experiment and the model exist for the second run
        MlflowRun(store, "shop", "shop-1", uid, 0).register("shop", lineage)

    def refuse(*_: Any) -> None:
        raise MlflowException("You may not.", PERMISSION_DENIED)

    monkeypatch.setattr(MlflowClient, call, refuse)
    with pytest.raises(MlflowException, match="You may not"):
        MlflowRun(store, "shop", "shop-1", "3", 0).register("shop", lineage)
