"""Starting the programs of `agentfly up`, their log, and repeated deployment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfly_core.system.service import ServiceLost
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.own_servers import Program
from flows.up import serving
from flows.up.serving import _keep, _start, _wait
from flows.up.status import LOG


def program(kind: str, code: str) -> Program:
    """A Python program in place of a server."""
    return Program(kind, [sys.executable, "-S", "-c", code], {})


def test_any_program_that_cannot_start_ends_the_wait(tmp_path: Path) -> None:
    lives = program("prefect", "import signal; signal.pause()")
    with (
        ExitStack() as stack,
        pytest.raises(ServiceLost, match="The mlflow service does not start"),
    ):
        services = [
            _start(each, tmp_path / "up.log", stack)
            for each in (lives, program("mlflow", "exit(1)"), lives)
        ]
        _wait(services, lambda: False, "nothing")


def test_a_server_that_never_answers_is_named_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serving, "LONGEST", -1.0)
    with pytest.raises(ServiceLost, match=r"MLflow at http://pc:5000 was not ready after"):
        _wait([], lambda: False, "MLflow at http://pc:5000")


class Enough(Exception):
    """Ends the endless loop."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowStore:
    """A project with a running server, checked four times."""
    turns: Iterator[None] = iter([None] * 4)

    def turn(seconds: float) -> None:
        if next(turns, Enough) is Enough:
            raise Enough

    monkeypatch.setattr(serving.time, "sleep", turn)
    monkeypatch.setattr(serving, "own_api", lambda state: {"PREFECT_API_URL": "http://pc/api"})
    (tmp_path / LOG).parent.mkdir()
    return MlflowStore.choose(tmp_path)


def test_a_failed_deployment_is_retried_and_printed_once(
    place: MlflowStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = iter(["The server is busy.", "The server is busy.", ""])
    monkeypatch.setattr(serving, "_deployable", lambda: ["market", "stall"])
    monkeypatch.setattr(serving, "_deploy", lambda log: next(faults))
    with pytest.raises(Enough):
        _keep([], place, ["market"])
    assert capsys.readouterr().out == "The deployments stay as they are. The server is busy.\n"
    assert list(faults) == []


def test_a_long_log_is_rotated_while_programs_append_to_it(
    place: MlflowStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LARGEST_LOG", 8)
    monkeypatch.setattr(serving, "_deployable", list)
    log = place.state / LOG
    with log.open("a") as output:
        print("an old line", file=output, flush=True)
        with pytest.raises(Enough):
            _keep([], place, [])
        print("new", file=output, flush=True)
    assert log.with_name("up.log.1").read_text() == "an old line\n"
    assert log.read_text() == "new\n"
