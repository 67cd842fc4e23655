"""A project's own servers: the password, and ports in use."""

from __future__ import annotations

import configparser
import os
import socket
from pathlib import Path

import pytest

from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.mlflow_ui import mlflow_server
from flows.local.own_servers import FILE, free_port, password, require_free


def test_only_its_owner_can_read_the_password_of_a_project(tmp_path: Path) -> None:
    created = password(tmp_path)
    assert password(tmp_path) == created
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert len(created) >= 32


def test_a_new_password_resets_the_mlflow_accounts(tmp_path: Path) -> None:
    first = password(tmp_path)
    (tmp_path / "mlflow-users.db").touch()
    (tmp_path / FILE).unlink()
    assert password(tmp_path) != first
    assert not (tmp_path / "mlflow-users.db").exists()


def test_an_empty_password_is_refused_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with pytest.raises(ValueError, match=r"is empty\. Remove it"):
        password(tmp_path)


def test_mlflow_grants_nothing_by_default(
    tmp_path: Path,
) -> None:
    state = tmp_path / "my 100% shöp"
    state.mkdir()
    program = mlflow_server(MlflowStore("sqlite:///", state, ""), 5001)
    read = configparser.ConfigParser()
    read.read(program.env["MLFLOW_AUTH_CONFIG_PATH"])
    assert read["mlflow"]["default_permission"] == "NO_PERMISSIONS"
    assert read["mlflow"]["database_uri"] == f"sqlite:///{state}/mlflow-users.db"
    assert program.env["MLFLOW_AUTH_ADMIN_PASSWORD"] == password(state)
    assert password(state) not in program.env["MLFLOW_FLASK_SERVER_SECRET_KEY"]
    assert password(state) not in repr(program)


def test_a_port_in_use_is_named_with_its_program_and_the_option() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError) as raised:
            require_free(port, "MLflow's server", "--mlflow-port")
        assert free_port(port) != port
    assert str(raised.value).startswith(
        f"Port {port}, which MLflow's server needs, is used by process {os.getpid()} ("
    )
    assert str(raised.value).endswith(f"agentfly up --mlflow-port {port + 1}")
    require_free(port, "MLflow's server", "--mlflow-port")
    assert free_port(port) == port
