"""A project's own Prefect server and its password."""

import os
from dataclasses import replace

import pytest

from flows.local import prefect_server
from flows.local.ports import mark
from flows.local.prefect_server import GUARD, PAGE_API, open_flow_run, prefect_command, reach
from flows.local.sign_in import SignIn
from flows.local.state_dirs import Places, StateDir
from tests.support.servers import free_port, listener

START = ["server", "start"]


class Became(Exception):
    """The command that this process would have become, and its environment."""

    def __init__(self, words, env):
        super().__init__(words)
        self.env = env


@pytest.fixture
def places(tmp_path, monkeypatch):
    def execve(program, words, env):
        assert env["PYTHONSAFEPATH"] == "1"  # and so for the flow runs that a worker starts
        raise Became(words[3:], env)

    monkeypatch.setattr(os, "execve", execve)
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING", GUARD, PAGE_API):
        monkeypatch.setenv(name, "")  # so that it is restored
        monkeypatch.delenv(name)
    return Places(
        tmp_path, "http://127.0.0.1:4200/api", StateDir(str(tmp_path), "the project's own")
    )


@pytest.fixture
def alone(places):
    """A project without `agentfly up` and without a chosen API."""
    return replace(places, api="")


@pytest.mark.parametrize(
    "words", [["--host", "0.0.0.0"], ["--port", "4200", "--host=192.168.0.7"], ["--host", "pc"]]
)
def test_a_server_that_others_could_reach_without_a_password_is_refused(places, words):
    with pytest.raises(
        ValueError, match=r"expected 127\.0\.0\.1.*Set PREFECT_SERVER_API_AUTH_STRING"
    ):
        prefect_command(places, [*START, *words])


def test_so_is_one_whose_host_comes_from_the_environment(places, monkeypatch):
    monkeypatch.setenv("PREFECT_SERVER_API_HOST", "0.0.0.0")
    with pytest.raises(ValueError, match=r"'0\.0\.0\.0'"):
        prefect_command(places, START)


@pytest.mark.parametrize(
    "words", [[], ["--host", "127.0.0.1"], ["--host", "::1"], ["--host=localhost"]]
)
def test_a_server_on_loopback_starts(places, words):
    with pytest.raises(Became, match="server"):
        prefect_command(places, [*START, *words])


def test_a_server_that_asks_for_a_password_may_listen_anywhere(places, monkeypatch):
    monkeypatch.setenv("PREFECT_SERVER_API_AUTH_STRING", "someone:secret")
    with pytest.raises(Became, match=r"0\.0\.0\.0"):
        prefect_command(places, [*START, "--host", "0.0.0.0"])


@pytest.mark.parametrize("words", [["--port", "4217"], ["--port=4217", "--host", "127.0.0.1"]])
def test_the_page_of_a_server_on_another_port_asks_that_server(alone, words):
    with pytest.raises(Became) as became:
        prefect_command(alone, [*START, *words])
    assert became.value.env[PAGE_API] == "http://127.0.0.1:4217/api"


def test_the_url_that_a_user_set_for_the_page_stays(alone, monkeypatch):
    monkeypatch.setenv(PAGE_API, "https://prefect.example/api")
    with pytest.raises(Became) as became:
        prefect_command(alone, START)
    assert became.value.env[PAGE_API] == "https://prefect.example/api"


def test_a_server_without_up_takes_the_password_of_the_project(alone):
    with pytest.raises(Became) as became:
        prefect_command(alone, START)
    assert became.value.env[GUARD] == SignIn.of(alone.state).basic


def test_a_password_that_a_user_set_for_the_server_stays(alone, monkeypatch):
    monkeypatch.setenv(GUARD, "someone:secret")
    with pytest.raises(Became) as became:
        prefect_command(alone, START)
    assert became.value.env[GUARD] == "someone:secret"


def test_a_flow_run_is_served_beside_a_stranger_on_the_usual_port(alone, monkeypatch, capsys):
    with listener() as stranger:
        free = free_port()
        monkeypatch.setattr(prefect_server, "PORTS", [stranger, free])
        with pytest.raises(Became, match=f"--port', '{free}'"):
            open_flow_run(alone, "4f1c")
    link, sign_in = capsys.readouterr().out.splitlines()
    assert link == f"http://127.0.0.1:{free}/runs/flow-run/4f1c"
    assert sign_in == f"Sign in with agentfly:the password in {alone.state}/sign-in.json"


def test_a_flow_run_is_opened_on_the_running_server_of_the_project(alone, capsys):
    with listener({**mark("prefect", alone.state), GUARD: "someone:secret"}) as port:
        open_flow_run(alone, "4f1c")
    assert capsys.readouterr().out == f"http://127.0.0.1:{port}/runs/flow-run/4f1c\n"


def test_prefect_commands_sign_in_to_the_running_server_of_the_project(alone):
    with listener({**mark("prefect", alone.state), GUARD: "someone:secret"}) as port:
        with pytest.raises(Became) as became:
            prefect_command(alone, ["deployment", "ls"])
        assert reach(alone) == f"http://127.0.0.1:{port}/api"
    assert became.value.env["PREFECT_API_URL"] == f"http://127.0.0.1:{port}/api"
    assert became.value.env["PREFECT_API_AUTH_STRING"] == "someone:secret"


def test_prefect_commands_never_send_the_password_to_another_server(alone, monkeypatch):
    free = free_port()
    with listener({**mark("prefect", alone.state / "other"), GUARD: "someone:secret"}) as stranger:
        monkeypatch.setattr(prefect_server, "PORTS", [stranger, free])
        with pytest.raises(Became) as became:
            prefect_command(alone, ["worker", "start"])
        assert reach(alone) == ""
    assert became.value.env["PREFECT_API_URL"] == f"http://127.0.0.1:{free}/api"
    assert "PREFECT_API_AUTH_STRING" not in became.value.env
