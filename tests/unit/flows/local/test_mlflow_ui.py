"""Opening a run in the MLflow UI."""

import socket
from pathlib import Path

import pytest

from agentfly_core.runs.mlflow_client import Place
from flows.local import mlflow_ui


def test_where_other_programs_have_all_ports_it_says_so(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        monkeypatch.setattr(mlflow_ui, "PORTS", range(port, port + 1))
        with pytest.raises(ValueError, match=f"Other programs use all ports from {port} to {port}"):
            mlflow_ui.open_run(
                Place("sqlite:///mlflow.db", Path(), "the project's own store"), "5f0e"
            )
