"""Starting the programs of `agentfly up`, and repeated deployment."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfly_core.system.service import ServiceLost
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local import serving
from flows.local.own_servers import Program


def test_a_program_that_cannot_start_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Program("prefect", [sys.executable, "-S", "-c", "exit('no space left')"], {})
    monkeypatch.setattr(serving, "prefect_server", lambda state, port: broken)
    monkeypatch.setattr(serving, "mlflow_server", lambda place, port: broken)
    with (
        ExitStack() as stack,
        pytest.raises(ServiceLost, match=r"The prefect service died 21 times(.|\n)*no space left"),
    ):
        serving.start(MlflowStore.choose(tmp_path), (1, 2), stack)


class Enough(Exception):
    """Ends the endless loop."""


def test_a_failed_deployment_is_printed_and_repeated_after_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    turns: Iterator[None] = iter([None] * 4)

    def turn(seconds: float) -> None:
        if next(turns, Enough) is Enough:
            raise Enough

    states = iter([["market"], ["market", "stall"], ["market", "stall"], ["stall"]])
    outcomes = iter(["The server is busy.", ""])

    def deploy(log: Path) -> None:
        if refusal := next(outcomes):
            raise ValueError(refusal)

    monkeypatch.setattr(serving.time, "sleep", turn)
    monkeypatch.setattr(serving, "deployable", lambda: next(states))
    monkeypatch.setattr(serving, "deploy", deploy)
    with pytest.raises(Enough):
        serving.keep([], tmp_path / "up.log", ["market"])
    assert capsys.readouterr().out == "The deployments stay as they are. The server is busy.\n"
    assert list(outcomes) == []
