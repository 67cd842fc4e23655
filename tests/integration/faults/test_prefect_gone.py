"""The Prefect server is gone for good amid a run."""

import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flows.local.prefect_server import answers
from tests.support.killed_commands import TRAIN, Lives, Whole, digests
from tests.support.owned_programs import serving
from tests.support.waiting import until


@pytest.fixture
def server(
    service_address: Callable[[str], Path],
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[tuple[str, int]]:
    """The address and the process of a Prefect server that may be killed."""
    home = tmp_path_factory.mktemp("prefect")
    monkeypatch.setenv("PREFECT_HOME", str(home))
    monkeypatch.setenv("PREFECT_SERVER_MEMO_STORE_PATH", str(home / "memo_store.toml"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "prefect",
        "server",
        "start",
        "--no-services",  # which would write to the same SQLite file
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    with serving(command, service_address("prefect"), home / "log") as process:
        until(lambda: answers(f"http://127.0.0.1:{port}/api"), process)
        yield f"http://127.0.0.1:{port}/api", process


@pytest.mark.long
def test_a_run_finishes_without_its_prefect_server(
    at_step_2: Path, lives: Lives, whole: Whole, server: tuple[str, int]
) -> None:
    api, process = server
    # one retry, since SQLite may be busy while the server is there; each costs 2 s when it is not
    env = {"PREFECT_API_URL": api, "PREFECT_CLIENT_MAX_RETRIES": "1"}
    end = lives.run(at_step_2, *TRAIN, env=env, at="update 3 1", of=process)
    assert end.code == 0, end.printed
    assert (
        "agentfly: The run is finished, but Prefect could not be reached: ConnectError"
        in end.printed
    )
    assert digests(at_step_2) == digests(whole.folder)
    again = lives.run(at_step_2, *TRAIN, env=env)
    assert (again.code, again.moments) == (0, ())
