"""MLflow's store as a fresh one is, without the seconds in which MLflow makes it."""

import tempfile
from functools import cache
from pathlib import Path

from mlflow import MlflowClient


def new_store(folder: Path) -> str:
    """The address of the store in a folder; a missing store is created."""
    path = folder / "mlflow.db"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_nothing())
    return f"sqlite:///{path}"


@cache
def _nothing() -> bytes:
    """The database of a new MLflow store."""
    with tempfile.TemporaryDirectory(prefix="agentfly-") as folder:
        MlflowClient(f"sqlite:///{folder}/mlflow.db").search_experiments()
        return Path(folder, "mlflow.db").read_bytes()
