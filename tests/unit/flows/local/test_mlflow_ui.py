"""Opening a run in the MLflow UI."""

import os

import pytest

from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from flows.local import mlflow_ui
from flows.local.own_servers import mark, password
from tests.support.servers import listener


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project's store in which MLflow finds every run."""
    monkeypatch.setattr(mlflow_ui, "page", lambda place, run_id, server: f"{server}/#/{run_id}")
    return MlflowStore(f"sqlite:///{tmp_path}/mlflow.db", tmp_path, "the project's own store")


def test_a_run_is_served_with_a_password_on_another_port(place, monkeypatch, capsys):
    started = []
    monkeypatch.setattr(os, "execve", lambda *arguments: started.append(arguments))
    with listener() as stranger:
        monkeypatch.setattr(mlflow_ui, "PORT", stranger)
        mlflow_ui.open_run(place, "5f0e")
    ((_, words, env),) = started
    port = int(words[words.index("--port") + 1])
    assert port != stranger
    assert env["MLFLOW_AUTH_ADMIN_PASSWORD"] == password(place.state)
    assert "basic-auth" in words
    assert capsys.readouterr().out.splitlines() == [
        f"http://127.0.0.1:{port}/#/5f0e",
        f"Sign in (user name, password): agentfly, the password in {place.state}/password",
    ]


def test_a_run_is_opened_on_the_running_server_of_its_store(place, capsys):
    with listener(mark("mlflow", place.state, place.uri)) as port:
        mlflow_ui.open_run(place, "5f0e")
    assert capsys.readouterr().out == f"http://127.0.0.1:{port}/#/5f0e\n"
