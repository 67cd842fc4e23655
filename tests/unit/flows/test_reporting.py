"""Calls to MLflow run in a thread, so stages do not wait for them."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows import reporting
from flows.reporting import Background
from tests.support.waiting import LIMIT

COMMAND = "`agentfly train quickstart`"
SERVED = MlflowStore("http://127.0.0.1:5000", Path("."), "for a test")
OWN = MlflowStore("sqlite:///mlflow.db", Path("."), "for a test")
Output = pytest.CaptureFixture[str]


def connected() -> Any:
    """A run at an MLflow that accepts every call."""
    return SimpleNamespace(refused={}, got=[])


def unreachable() -> Any:
    raise RuntimeError("cannot send") from ConnectionRefusedError(111, "Connection refused")


def nothing(mlflow: Any) -> None:
    """A call that sends nothing."""


def test_calls_are_skipped_during_a_call_except_the_last_one(capsys: Output) -> None:
    sending, at_work, released = Background(OWN, connected), threading.Event(), threading.Event()
    got: list[str] = []

    def slow(mlflow: Any) -> None:
        at_work.set()
        released.wait(LIMIT)
        got.append("slow")

    sending.start(slow)
    assert at_work.wait(LIMIT)
    sending.start(lambda mlflow: got.append("left out"))
    released.set()
    sending.finish(lambda mlflow: got.append("last"), COMMAND)
    assert capsys.readouterr().out == ""
    assert got == ["slow", "last"]


@pytest.mark.parametrize("before", [None, ConnectionRefusedError(111, "refused")])
def test_the_end_does_not_wait_for_a_server_that_hangs(
    before: Exception | None, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setattr(reporting, "SERVER", 0.01)
    sending, released = Background(SERVED, connected), threading.Event()
    sending.error = before
    sending.finish(lambda mlflow: released.wait(LIMIT) and None, COMMAND)
    released.set()
    missing = capsys.readouterr().out
    assert "was not reached: TimeoutError: no answer in" in missing
    assert missing.endswith(f"Nothing is lost: {COMMAND} sends the rest.\n")


def test_the_reason_is_the_first_error_of_the_chain(capsys: Output) -> None:
    Background(SERVED, unreachable).finish(nothing, COMMAND)
    reason = "not reached: ConnectionRefusedError: [Errno 111] Connection refused."
    assert reason in capsys.readouterr().out


def test_a_call_after_an_outage_connects_and_clears_the_error(capsys: Output) -> None:
    ways = iter([unreachable, connected])
    sending = Background(SERVED, lambda: next(ways)())
    sending.finish(nothing, COMMAND)
    assert "not reached" in capsys.readouterr().out
    sending.finish(nothing, COMMAND)
    assert capsys.readouterr().out == ""
    assert sending.error is None


def test_refused_entries_are_named_without_a_promise(capsys: Output) -> None:
    def refuse(mlflow: Any) -> None:
        mlflow.refused.update({f"the metric '{name}'": "not a number" for name in "abcde"})

    Background(OWN, connected).finish(refuse, COMMAND)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "MLflow (sqlite:///mlflow.db) refused the metric 'a' (not a number)."
    assert last == "MLflow (sqlite:///mlflow.db) refused 2 more."


def test_a_refused_call_is_not_promised(capsys: Output) -> None:
    def refuse(mlflow: Any) -> None:
        error: Any = ValueError("No such model")
        error.error_code = "INVALID_PARAMETER_VALUE"
        raise error

    Background(OWN, connected).finish(refuse, COMMAND)
    missing = capsys.readouterr().out
    assert "No such model" in missing
    assert "Nothing is lost" not in missing


def test_a_damaged_file_of_the_run_is_named_and_not_promised(capsys: Output) -> None:
    def damaged(mlflow: Any) -> None:
        raise Damaged("runs/a/metrics.json is damaged.")

    store = MlflowStore("https://me:a-password@mlflow.example", Path("."), "for a test")
    Background(store, connected).finish(damaged, COMMAND)
    assert capsys.readouterr().out == (
        "The run was not sent to MLflow (https://me:[password]@mlflow.example): "
        "Damaged: runs/a/metrics.json is damaged.\n"
    )
