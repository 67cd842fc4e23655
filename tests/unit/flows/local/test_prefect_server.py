"""The Prefect server listens on this machine only, unless it asks for a password."""

import os

import pytest

from flows.local.prefect_server import prefect_command
from flows.local.state_dirs import Place, Places

START = ["server", "start"]


class Became(Exception):
    """What this process would have become."""


@pytest.fixture
def places(tmp_path, monkeypatch):
    def execve(program, words, env):
        assert env["PYTHONSAFEPATH"] == "1"  # and so for the flow runs that a worker starts
        raise Became(words[3:])

    monkeypatch.setattr(os, "execve", execve)
    return Places(tmp_path, "http://127.0.0.1:4200/api", Place(str(tmp_path), "the project's own"))


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
