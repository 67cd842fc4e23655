"""Messages of `agentfly up` and `down` before anything starts."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.system.process import Owner
from flows import deploy
from flows.__main__ import main
from flows.local import prefect_server
from flows.local.own_servers import GUARD, mark
from flows.local.state_dirs import ELSEWHERE
from flows.local.up import keeper
from tests.support.project import ROOT
from tests.support.servers import free_port, listener, receiver


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory without a chosen Prefect."""
    for name in (*ELSEWHERE, "PREFECT_API_AUTH_STRING", "PREFECT_PROFILES_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_without_services_status_and_down_report_it(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = f"`agentfly up` does not run for this project ({project}/.agentfly).\n"
    assert (main(["up", "--status"]), capsys.readouterr().out) == (1, message)
    assert (main(["down"]), capsys.readouterr().out) == (0, message)


def test_up_needs_a_project_with_deployments(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up"]) == 2
    printed = capsys.readouterr().err
    assert f"{project}/prefect.yaml, the list of deployments, is" in printed
    assert "agentfly init" in printed


def test_up_names_the_experiment_that_is_not_in_conf(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "prefect.yaml").write_text(
        "deployments: [{name: nightly, parameters: {experiment: market}}]"
    )
    assert main(["up"]) == 2
    assert "'nightly'" in (printed := capsys.readouterr().err)
    assert f"{project}/conf/market.yaml does not exist" in printed


HOLDS = """
import sys
from pathlib import Path
from flows.local.up import only_one
with only_one(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
print("released", flush=True)
"""


@pytest.fixture
def served(project: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the project's lock until SIGTERM or its input ends."""
    main(["down"])
    words = [sys.executable, "-c", HOLDS, str(project / ".agentfly")]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True, cwd=ROOT) as process:
        assert process.stdout and process.stdout.readline() == "held\n"
        yield process


def test_only_one_process_serves_a_project(
    served: subprocess.Popen[str], project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert keeper(project / ".agentfly") == served.pid
    assert main(["up"]) == main(["up", "--detach"]) == 2
    assert "`agentfly up` runs in this folder already" in capsys.readouterr().err


def test_status_names_broken_services(
    served: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["up", "--status"]) == 1
    printed = capsys.readouterr().out
    for name in ("Prefect  ", "MLflow   ", "Worker  ", "Deployed "):
        assert f"{name} DOES NOT WORK" in printed


def test_down_ends_the_process_that_holds_the_lock(
    served: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert main(["down"]) == 0
    assert served.wait() == -signal.SIGTERM
    assert capsys.readouterr().out.endswith("two minutes to end.\nEnded.\n")


def test_the_password_is_not_printed_for_an_mlflow_of_others(
    served: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with receiver() as mlflow:
        uri = mlflow.url.replace("//", "//me:secret@")
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        assert main(["up", "--status"]) == 1
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "MLflow  " in line]
    assert line == f"MLflow   {uri.replace('secret', '[password]')} works"


def test_down_ends_no_process_without_the_lock(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["down"])
    capsys.readouterr()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1) as stranger:
        (project / ".agentfly/up.lock").write_text(str(stranger.pid))
        assert main(["down"]) == 0
        assert capsys.readouterr().out.startswith("`agentfly up` does not run for this project")
        assert stranger.poll() is None
        stranger.kill()


LOCKS = """
import fcntl, sys
with open(sys.argv[1], "a") as lock:
    fcntl.lockf(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("written", ["", "another", "itself before it began"])
def test_down_ends_no_process_that_another_one_may_be(
    project: Path, capsys: pytest.CaptureFixture[str], written: str
) -> None:
    main(["down"])
    capsys.readouterr()
    path = project / ".agentfly/up.lock"
    words = [sys.executable, "-c", LOCKS, str(path)]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as stranger:
        assert stranger.stdout and stranger.stdout.readline() == "held\n"
        me = Owner.current()
        owner = me if written == "another" else replace(me, pid=stranger.pid)
        path.write_text(json.dumps(owner.to_json()) if written else "")
        assert main(["down"]) == 2
        error = capsys.readouterr().err
        held = f"Process {stranger.pid} holds the lock {path}"
        assert f"{held}, but it may not be `agentfly up`." in error
        assert stranger.poll() is None
        stranger.kill()


def test_a_prefect_that_was_chosen_elsewhere_is_not_replaced(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    assert main(["up"]) == 2
    errors = capsys.readouterr().err
    assert "This project uses the Prefect server https://prefect.example/api" in errors
    assert "python -m flows.deploy" in errors


def test_a_port_in_use_is_named(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main(["up", f"--mlflow-port={port}", f"--prefect-port={free_port()}"]) == 2
    assert f"Another program uses the port {port}." in capsys.readouterr().err


def test_nothing_is_deployed_to_the_server_of_another_project(project: Path) -> None:
    with (
        listener({**mark("prefect", project / "other" / ".agentfly"), GUARD: "someone:secret"}),
        pytest.raises(SystemExit, match="Prefect server is not running"),
    ):
        deploy.main()


@pytest.mark.parametrize("size", [0, 199, 200, 405])
def test_deployments_beyond_the_first_page_are_read(size: int) -> None:
    pages: list[int] = []

    class Server:
        """Answers with 200 deployments at most, as Prefect does."""

        def read_deployments(self, limit: int, offset: int = 0) -> list[int]:
            pages.append(offset)
            assert len(pages) <= 3, "each page is read once"
            return [*range(size)][offset : offset + min(limit, 200)]

    assert deploy.all_deployments(Server()) == [*range(size)]  # type: ignore[arg-type]


def test_status_never_sends_the_password_to_another_server(
    served: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with receiver() as stranger:
        monkeypatch.setattr(prefect_server, "PORT", int(stranger.url.rpartition(":")[2]))
        assert main(["up", "--status"]) == 1
    assert stranger.calls == []
    assert "Prefect   DOES NOT WORK" in capsys.readouterr().out


def test_folders_that_others_could_enter_are_closed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".agentfly").mkdir(mode=0o755)
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    assert main(["up"]) == 2
    assert (project / ".agentfly").stat().st_mode & 0o777 == 0o700
