"""How long a run waits for MLflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentfly_core.tracking.mlflow_client import MlflowStore, Tracker
from agentfly_core.tracking.outbox import Outbox


@pytest.mark.parametrize(
    ("uri", "seconds"), [("sqlite:///mlflow.db", 1800.0), ("http://127.0.0.1:5000", 20.0)]
)
def test_a_server_may_hang_and_a_store_without_one_may_be_slow(
    uri: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(Outbox, "flush", lambda _, deadline: waited.append(deadline))
    Tracker(MlflowStore(uri, tmp_path, "for a test"), "shop", "shop-1", "4f1c", 0).flush()
    assert waited == [seconds]
