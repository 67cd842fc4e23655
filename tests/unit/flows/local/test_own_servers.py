"""A project's own servers: the password, and ports in use."""

import configparser
from pathlib import Path

from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from flows.local.mlflow_ui import mlflow_server
from flows.local.own_servers import FILE, password


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


def test_an_empty_password_is_replaced(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    assert len(password(tmp_path)) >= 32


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
