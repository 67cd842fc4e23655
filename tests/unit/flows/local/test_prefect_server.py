"""A project's own Prefect server and its password."""

import os
from dataclasses import replace

import pytest

from flows.local import doctor, prefect_server
from flows.local.own_servers import GUARD, mark, password
from flows.local.prefect_server import SERVER_PORT, answers, open_flow_run, prefect_command
from flows.local.state_dirs import ELSEWHERE, Places, settle
from tests.support.servers import listener

START = ["server", "start"]


class Became(Exception):
    """Raised with the command and the environment that would replace this process."""

    def __init__(self, words, env):
        super().__init__(words)
        self.env = env


@pytest.fixture
def places(tmp_path, monkeypatch):
    def execve(program, words, env):
        assert env["PYTHONSAFEPATH"] == "1"  # the flow runs of a worker inherit it
        raise Became(words[3:], env)

    monkeypatch.setattr(os, "execve", execve)
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", GUARD, SERVER_PORT):
        monkeypatch.setenv(name, "")  # monkeypatch restores it
        monkeypatch.delenv(name)
    monkeypatch.setenv("PREFECT_PROFILES_PATH", str(tmp_path / "profiles.toml"))
    return Places(tmp_path, "http://127.0.0.1:4200/api", "the project's own")


@pytest.fixture
def without_api(places):
    """A project without `agentfly up` and without a chosen API."""
    return replace(places, api="")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "0.0.0.0", "pc"])
def test_a_server_requires_the_password_of_the_project(without_api, host):
    with pytest.raises(Became, match=host) as became:
        prefect_command(without_api, [*START, "--host", host])
    assert became.value.env[GUARD] == f"agentfly:{password(without_api.state)}"


@pytest.mark.parametrize("words", [["--port", "4217"], ["--port=4217", "--host", "127.0.0.1"]])
def test_the_page_uses_the_port_of_its_server(without_api, words):
    with pytest.raises(Became) as became:
        prefect_command(without_api, [*START, *words])
    assert became.value.env[SERVER_PORT] == "4217"


def test_a_password_that_a_user_set_for_the_server_stays(without_api, monkeypatch):
    monkeypatch.setenv(GUARD, "someone:secret")
    with pytest.raises(Became) as became:
        prefect_command(without_api, START)
    assert became.value.env[GUARD] == "someone:secret"


def test_a_flow_run_is_served_although_the_usual_port_is_taken(without_api, monkeypatch, capsys):
    with listener() as stranger:
        monkeypatch.setattr(prefect_server, "PORT", stranger)
        with pytest.raises(Became) as became:
            open_flow_run(without_api, "4f1c")
    link, sign_in = capsys.readouterr().out.splitlines()
    port = became.value.env[SERVER_PORT]
    assert link == f"http://127.0.0.1:{port}/runs/flow-run/4f1c"
    assert port != str(stranger)
    assert sign_in == f"Sign in with agentfly:the password in {without_api.state}/password"


@pytest.fixture
def project(without_api, tmp_path, monkeypatch):
    """A folder without a chosen Prefect."""
    for name in ELSEWHERE:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_commands_sign_in_to_the_running_server_of_the_project(project, capsys):
    server = {**mark("prefect", project / ".agentfly"), GUARD: "someone:secret"}
    with listener(server) as port:
        places = settle(project)
        with pytest.raises(Became) as became:
            prefect_command(places, ["deployment", "ls"])
        open_flow_run(places, "4f1c")
    assert places.api == f"http://127.0.0.1:{port}/api"
    assert became.value.env["PREFECT_API_URL"] == places.api
    assert became.value.env["PREFECT_API_AUTH_STRING"] == "someone:secret"
    assert capsys.readouterr().out == f"http://127.0.0.1:{port}/runs/flow-run/4f1c\n"


def test_commands_never_send_the_password_to_another_server(project, monkeypatch):
    server = {**mark("prefect", project / "other" / ".agentfly"), GUARD: "someone:secret"}
    with listener(server) as stranger:
        monkeypatch.setattr(prefect_server, "PORT", stranger)
        places = settle(project)
        with pytest.raises(Became) as became:
            prefect_command(places, ["worker", "start"])
    assert places.api == ""
    assert not became.value.env["PREFECT_API_URL"].endswith(f":{stranger}/api")
    assert "PREFECT_API_AUTH_STRING" not in became.value.env


@pytest.mark.parametrize("url", ["", "http://127.0.0.1:42oo/api", "prefect.example/api"])
def test_no_server_answers_at_an_invalid_address(url):
    assert not answers(url)
    assert not doctor.server("Prefect server", url).ok
