"""What other commands find of `agentfly up`: its servers, its password, and its ports."""

from __future__ import annotations

import configparser
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.system.process import Owner
from flows.local.ports import require_free
from flows.local.servers import Servers
from flows.local.sign_in import FILE, SignIn

SERVERS = Servers("http://127.0.0.1:4200", "http://127.0.0.1:5000", "0.1.0", Owner.current())


def test_servers_are_found_as_long_as_the_process_that_keeps_them_lives(tmp_path: Path) -> None:
    assert Servers.running(tmp_path) is None
    served = replace(SERVERS, ready=True, faults=("died 4 times",))
    served.write(tmp_path)
    assert Servers.running(tmp_path) == served
    replace(served, owner=replace(served.owner, ticks=1)).write(tmp_path)
    assert Servers.running(tmp_path) is None, "another process has its number"
    replace(served, owner=replace(served.owner, host="other")).write(tmp_path)
    assert Servers.running(tmp_path) is None, "its loopback is not ours"
    (tmp_path / "up.json").write_text("{")
    assert Servers.running(tmp_path) is None


def test_a_project_has_one_password_which_only_its_owner_reads(tmp_path: Path) -> None:
    made = SignIn.of(tmp_path)
    assert SignIn.of(tmp_path) == made
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600
    assert len(made.password) >= 32
    assert made.password != made.signing_key
    assert made.prefect_client["PREFECT_API_AUTH_STRING"] == f"agentfly:{made.password}"


def test_a_new_password_is_mlflows_too_whose_accounts_begin_anew(tmp_path: Path) -> None:
    first = SignIn.of(tmp_path)
    (tmp_path / "mlflow-users.db").touch()
    (tmp_path / FILE).unlink()
    assert SignIn.of(tmp_path).password != first.password
    assert not (tmp_path / "mlflow-users.db").exists()


def test_a_damaged_password_is_told_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(ValueError, match=r"is damaged\. Remove it"):
        SignIn.of(tmp_path)


def test_mlflow_grants_nothing_to_others_and_keeps_its_accounts_in_the_state(
    tmp_path: Path,
) -> None:
    state = tmp_path / "my 100% shöp"
    state.mkdir()
    sign_in = SignIn.of(state)
    environment = sign_in.mlflow_server(state)
    read = configparser.ConfigParser()
    read.read(environment["MLFLOW_AUTH_CONFIG_PATH"])
    assert read["mlflow"]["default_permission"] == "NO_PERMISSIONS"
    assert read["mlflow"]["database_uri"] == f"sqlite:///{state}/mlflow-users.db"
    assert environment["MLFLOW_AUTH_ADMIN_PASSWORD"] == sign_in.password


def test_a_port_that_is_taken_is_told_with_who_has_it_and_what_to_do() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(ValueError) as told:
            require_free(port, "MLflow's server", "--mlflow-port")
    assert str(told.value).startswith(
        f"Port {port}, which MLflow's server needs, is used by process {os.getpid()} ("
    )
    assert str(told.value).endswith(f"agentfly up --mlflow-port {port + 1}")
    require_free(port, "MLflow's server", "--mlflow-port")
