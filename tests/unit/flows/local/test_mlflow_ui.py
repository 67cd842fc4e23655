"""Opening a run in the MLflow UI."""

import os
import socket
from pathlib import Path

import pytest

from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local import mlflow_ui
from flows.local.ports import mark
from flows.local.sign_in import SignIn
from tests.support.servers import free_port, listener


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project's store in which MLflow finds every run."""
    monkeypatch.setattr(mlflow_ui, "page", lambda place, run_id, server: f"{server}/#/{run_id}")
    return MlflowStore(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, "the project's own store")


def test_a_run_is_served_with_a_password_beside_a_stranger(place, monkeypatch, capsys):
    started = []
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    with listener() as stranger:
        free = free_port()
        monkeypatch.setattr(mlflow_ui, "PORTS", [stranger, free])
        mlflow_ui.open_run(place, "5f0e")
    ((_, words, env),) = started
    assert words[-words[::-1].index("--port") :][0] == str(free)
    assert env["MLFLOW_AUTH_ADMIN_PASSWORD"] == SignIn.of(place.state).password
    assert "basic-auth" in words
    assert capsys.readouterr().out.splitlines() == [
        f"http://127.0.0.1:{free}/#/5f0e",
        f"Sign in as agentfly with the password in {place.state}/sign-in.json",
    ]


def test_a_run_is_opened_on_the_running_server_of_its_store(place, capsys):
    with listener(mark("mlflow", place.state, place.uri)) as port:
        mlflow_ui.open_run(place, "5f0e")
    assert capsys.readouterr().out == f"http://127.0.0.1:{port}/#/5f0e\n"


def test_where_other_programs_have_all_ports_it_says_so(monkeypatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        monkeypatch.setattr(mlflow_ui, "PORTS", range(port, port + 1))
        with pytest.raises(ValueError, match=f"Other programs use all ports from {port} to {port}"):
            mlflow_ui.open_run(
                MlflowStore("sqlite:///mlflow.db", Path(), "the project's own store"), "5f0e"
            )
