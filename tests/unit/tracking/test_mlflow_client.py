"""MLflow's database appears complete or not at all."""

import subprocess
import sys
from pathlib import Path

from agentfly_core.system.supervisor import die_with_parent
from agentfly_core.tracking.mlflow_client import MlflowStore
from tests.support.waiting import until

CONNECT = (
    "import sys; from pathlib import Path;"
    "from agentfly_core.tracking.mlflow_client import MlflowStore;"
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
