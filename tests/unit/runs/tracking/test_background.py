"""Calls to MLflow run in a thread, so stages do not wait for them."""

import threading
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.runs.tracking import background
from agentfly_core.runs.tracking.background import Background
from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from agentfly_core.system.formats.checksummed_json import Damaged
from tests.support.waiting import LIMIT

COMMAND = "`agentfly train quickstart`"
SERVED = MlflowStore("http://127.0.0.1:5000", Path("."), "for a test")
OWN = MlflowStore("sqlite:///mlflow.db", Path("."), "for a test")
Output = pytest.CaptureFixture[str]


def unreachable() -> None:
    raise RuntimeError("cannot send") from ConnectionRefusedError(111, "Connection refused")


def test_calls_are_skipped_during_a_call_except_the_last_one(capsys: Output) -> None:
    at_work, released = threading.Event(), threading.Event()
    got: list[int] = []

    def slow() -> None:
        at_work.set()
        released.wait(LIMIT)
        got.append(len(got))

    sending = Background(OWN, slow, COMMAND)
    sending.start()
    assert at_work.wait(LIMIT)
    sending.start()
    released.set()
    sending.finish()
    assert capsys.readouterr().out == ""
    assert got == [0, 1]


@pytest.mark.parametrize("before", [None, ConnectionRefusedError(111, "refused")])
def test_the_end_does_not_wait_for_a_server_that_hangs(
    before: Exception | None, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(background, "SERVER", 0.01)
    released = threading.Event()
    sending = Background(SERVED, lambda: released.wait(LIMIT) and None, COMMAND)
    sending.error = before
    sending.finish()
    released.set()
    missing = capsys.readouterr().out
    assert "lacks data: TimeoutError: no answer in" in missing
    assert missing.endswith(f"To send the missing data: {COMMAND}.\n")


def test_the_reason_is_the_first_error_of_the_chain(capsys: Output) -> None:
    Background(SERVED, unreachable, COMMAND).finish()
    reason = "lacks data: ConnectionRefusedError: [Errno 111] Connection refused."
    assert reason in capsys.readouterr().out


def test_a_call_after_an_outage_clears_the_error(capsys: Output) -> None:
    ways = iter([unreachable, lambda: None])
    sending = Background(SERVED, lambda: next(ways)(), COMMAND)
    sending.finish()
    assert "lacks data" in capsys.readouterr().out
    sending.finish()
    assert capsys.readouterr().out == ""
    assert sending.error is None


def test_a_refused_call_is_not_promised(capsys: Output) -> None:
    def refuse() -> None:
        error: Any = ValueError("No such model")
        error.error_code = "INVALID_PARAMETER_VALUE"
        raise error

    Background(OWN, refuse, COMMAND).finish()
    missing = capsys.readouterr().out
    assert "No such model" in missing
    assert COMMAND not in missing


def test_a_damaged_file_of_the_run_is_named(capsys: Output) -> None:
    def damaged() -> None:
        raise Damaged("runs/a/metrics.json is damaged.")

    store = MlflowStore("https://me:a-password@mlflow.example", Path("."), "for a test")
    Background(store, damaged, COMMAND).finish()
    assert capsys.readouterr().out == (
        "MLflow (https://me:[password]@mlflow.example) lacks data: "
        "Damaged: runs/a/metrics.json is damaged.\n"
        f"To send the missing data: {COMMAND}.\n"
    )
