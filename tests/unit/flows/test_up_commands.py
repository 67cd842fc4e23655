"""What `agentfly up` and `down` say before anything is started."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from agentfly_core.system.process import Owner
from flows import deploy
from flows.__main__ import main
from flows.local.ports import mark
from flows.local.prefect_server import GUARD
from flows.local.servers import Servers
from flows.local.state_dirs import ELSEWHERE
from tests.support.servers import free_port, listener, receiver


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, the working directory, whose Prefect is its own."""
    for name in (*ELSEWHERE, "PREFECT_API_AUTH_STRING", "PREFECT_PROFILES_PATH"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_where_nothing_runs_status_and_down_say_so(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = f"Nothing of `agentfly up` runs here ({project}/.agentfly).\n"
    assert (main(["up", "--status"]), capsys.readouterr().out) == (1, said)
    assert (main(["down"]), capsys.readouterr().out) == (0, said)


def test_status_says_what_does_not_work_and_which_program_died(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["down"])
    died = "worker died 4 times, the last time with exit code 1"
    prefect, mlflow = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    served = Servers(prefect, mlflow, "0.1.0", Owner.current(), ready=True, faults=(died,))
    served.write(project / ".agentfly")
    capsys.readouterr()
    assert main(["up", "--status"]) == 1
    said = capsys.readouterr().out
    assert "Prefect DOES NOT WORK, MLflow DOES NOT WORK, the worker DOES NOT WORK" in said
    assert f"Its {died}: all of it starts anew once no flow run is at work." in said


def test_only_one_serves_a_project(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["down"])
    with (project / ".agentfly/up.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["up"]) == 2
    assert "`agentfly up` runs in this folder already" in capsys.readouterr().err


def test_a_prefect_that_was_chosen_elsewhere_is_not_replaced(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    assert main(["up"]) == 2
    told = capsys.readouterr().err
    assert "Prefect is elsewhere: Prefect: https://prefect.example/api" in told
    assert "python -m flows.deploy" in told


def test_nothing_is_deployed_to_the_server_of_another_project(project: Path) -> None:
    with (
        listener({**mark("prefect", project / "other" / ".agentfly"), GUARD: "someone:secret"}),
        pytest.raises(SystemExit, match="No Prefect server of this project runs"),
    ):
        deploy.main()


def test_status_does_not_send_the_password_to_another_server_on_the_port(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["down"])
    with receiver() as stranger:
        Servers(stranger.url, "sqlite:///", "0.1.0", Owner.current(), ready=True).write(
            project / ".agentfly"
        )
        assert main(["up", "--status"]) == 1
    assert stranger.calls == []
    assert "Prefect DOES NOT WORK, MLflow works" in capsys.readouterr().out


def test_what_others_could_enter_before_is_closed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".agentfly").mkdir(mode=0o755)
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example/api")
    assert main(["up"]) == 2
    assert (project / ".agentfly").stat().st_mode & 0o777 == 0o700
