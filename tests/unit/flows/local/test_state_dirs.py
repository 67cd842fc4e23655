"""State is in the project by default, and no usage data are sent."""

import os
from pathlib import Path

import pytest

from agentfly_core.system.hardware import WAITING
from flows.local.state_dirs import ELSEWHERE, NO_TELEMETRY, main_workspace, settle


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch, tmp_path):
    paths = (
        "PREFECT_PROFILES_PATH",
        "PREFECT_SERVER_MEMO_STORE_PATH",
        "PREFECT_LOCAL_STORAGE_PATH",
    )
    for name in (*ELSEWHERE, *NO_TELEMETRY, *WAITING, *paths, "PREFECT_PROFILE"):
        monkeypatch.setenv(name, "set first, for the undo")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def profile(tmp_path, settings):
    path = tmp_path / "home" / ".prefect" / "profiles.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f'active = "work"\n[profiles.work]\n{settings}\n')


def test_state_is_in_the_project_by_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    places = settle(Path("."))
    assert places.state == tmp_path / ".agentfly"
    assert os.environ["PREFECT_HOME"] == str(tmp_path / ".agentfly/prefect")
    assert places.prefect == f"{tmp_path}/.agentfly/prefect (the project's own)"
    assert settle(Path(".")) == places


def test_an_api_in_the_environment_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    places = settle(tmp_path)
    assert places.api == "https://prefect.example/api"
    assert places.prefect == "https://prefect.example/api (PREFECT_API_URL)"
    assert "PREFECT_HOME" not in os.environ


def test_an_empty_variable_chooses_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "mine"))
    assert settle(tmp_path).prefect == f"{tmp_path}/mine (PREFECT_HOME)"


def test_an_api_in_the_active_profile_is_used(tmp_path):
    profile(tmp_path, 'PREFECT_API_URL = "http://10.0.0.5:4200/api"')
    places = settle(tmp_path)
    assert places.api == "http://10.0.0.5:4200/api"
    assert places.prefect.endswith("(PREFECT_API_URL)")


def test_a_profile_without_an_api_keeps_the_projects_server(tmp_path):
    profile(tmp_path, 'PREFECT_LOGGING_LEVEL = "DEBUG"')
    assert settle(tmp_path).prefect.endswith("(the project's own)")
    assert os.environ["PREFECT_PROFILES_PATH"] == str(tmp_path / "home/.prefect/profiles.toml")


def test_no_usage_data_are_sent_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "true")
    settle(tmp_path)
    assert (
        os.environ["DO_NOT_TRACK"]
        == os.environ["DVC_NO_ANALYTICS"]
        == os.environ["VLLM_NO_USAGE_STATS"]
        == "1"
    )
    assert os.environ["PREFECT_SERVER_ANALYTICS_ENABLED"] == "true"


@pytest.mark.parametrize("trial", [".dvc/tmp/exps/tmp4f2", ".dvc/tmp/exps/standalone/tmp4f2"])
def test_a_dvc_experiment_uses_the_runs_of_the_project(tmp_path: Path, trial: str) -> None:
    assert main_workspace(tmp_path / trial) == tmp_path
    assert main_workspace(tmp_path) == tmp_path
