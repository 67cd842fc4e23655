"""Starting the programs of `agentfly up`, and repeated deployment."""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from agentfly_core.system.service import ServiceLost
from flows.local import up
from flows.local.own_servers import Program


def test_a_program_that_cannot_start_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Program("prefect", [sys.executable, "-S", "-c", "exit('no space left')"], {})
    monkeypatch.setattr(up, "prefect_server", lambda state, port: broken)
    monkeypatch.setattr(up, "mlflow_server", lambda place, port: broken)
    with (
        ExitStack() as stack,
        pytest.raises(ServiceLost, match=r"prefect service died \(starts: 21(.|\n)*no space left"),
    ):
        up.start(MlflowStore.choose(tmp_path), (1, 2), stack)


class Inputs:
    """Deployments and their number; `refusals` are the outcomes of attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *refusals: str) -> None:
        self.now: list[object] = ["market"]
        self.attempts = 0
        self._refusals = iter(refusals)
        monkeypatch.setattr(up, "deployable", lambda: [*self.now])
        monkeypatch.setattr(up, "deploy", self._deploy)

    def _deploy(self, log: Path) -> None:
        self.attempts += 1
        if refusal := next(self._refusals, ""):
            raise ValueError(refusal)

    def looks(self, count: int, deployments: up.Deployments) -> list[int]:
        """The attempts after each of several looks."""
        attempts = []
        for _ in range(count):
            deployments.renew()
            attempts.append(self.attempts)
        return attempts


def test_a_change_is_deployed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = Inputs(monkeypatch)
    deployments = up.Deployments(tmp_path / "up.log", ["market"])
    assert inputs.looks(2, deployments) == [0, 0]
    inputs.now.append("stall")
    assert inputs.looks(3, deployments) == [1, 1, 1]


def test_a_failed_deployment_is_printed_and_repeated_at_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = Inputs(monkeypatch, "The server is busy.")
    deployments = up.Deployments(tmp_path / "up.log", [])
    assert inputs.looks(4, deployments) == [1, 2, 2, 2]
    assert capsys.readouterr().out == "The deployments were not updated. The server is busy.\n"


def test_a_refused_deployment_is_retried_less_often_until_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = Inputs(monkeypatch, *["prefect.yaml is invalid."] * 5)
    deployments = up.Deployments(tmp_path / "up.log", [])
    assert inputs.looks(8, deployments) == [1, 2, 2, 3, 3, 3, 3, 4]
    inputs.now.append("stall")
    assert inputs.looks(3, deployments) == [5, 6, 6]


def test_a_new_flow_of_an_experiment_is_a_new_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/shop.yaml").write_text("steps: 1\n")
    before = up.deployable()
    (tmp_path / "conf/shop.yaml").write_text("steps: 2\n")
    assert up.deployable() == before
    (tmp_path / "conf/shop.yaml").write_text("flows: {prices: 'my_shop:prices'}\n")
    assert up.deployable() != before


def test_files_of_editors_are_no_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/shop.yaml").write_text("flows: {prices: 'my_shop:prices'}\n")
    before = up.deployable()
    (tmp_path / "conf/.#shop.yaml").symlink_to("ada@pc.4711:1763740000")  # Emacs' lock
    assert up.deployable() == before


def test_a_file_that_cannot_be_read_ends_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/shop.yaml").write_text("flows: {prices: 'my_shop:prices'}\n")
    flows = up.deployable()[2]
    (tmp_path / "conf/old.yaml").symlink_to("removed.yaml")
    (tmp_path / "conf/stall.yaml").mkdir()
    assert up.deployable()[2] == flows == [("shop", "prices")]
