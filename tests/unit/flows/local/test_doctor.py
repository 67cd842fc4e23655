import io
import socket
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from rich.console import Console

from flows.local import doctor
from flows.local.doctor import Finding


def test_everything_that_cannot_run_has_a_remedy(tmp_path: Path) -> None:
    findings = doctor.examine(tmp_path, "", "")
    assert len({finding.name for finding in findings}) == len(findings)
    assert [finding.name for finding in findings if not finding.ok and not finding.remedy] == []


def test_the_quickstart_is_ready_without_unneeded_programs() -> None:
    compiler, gpu = (
        Finding("C++ compiler", True, "g++"),
        Finding("GPU", False, "none", "buy one", needed=False),
    )
    assert doctor.ready([compiler, gpu])
    assert not doctor.ready([Finding("C++ compiler", False, "not found", "apt install g++"), gpu])


def test_a_missing_compiler_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    finding = doctor.compiler()
    assert not finding.ok
    assert "no-such-compiler" in finding.detail
    assert "apt install g++" in finding.remedy


@pytest.mark.parametrize("name", ["MLflow server", "Prefect server"])
def test_a_missing_server_is_reported(name: str, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, without a listener
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        findings = doctor.examine(tmp_path, url, f"{url}/api")
    (server,) = (finding for finding in findings if finding.name == name)
    assert not server.ok
    assert server.detail.startswith(url)
    assert "[Errno 111] Connection refused" in server.detail


def test_a_missing_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.package("mlflow").detail.startswith("mlflow 3")
    monkeypatch.setitem(doctor.PACKAGES, "no-such-package", "pip install it")
    missing = doctor.package("no-such-package")
    assert (missing.ok, missing.needed, missing.remedy) == (False, True, "pip install it")


def test_vllm_is_not_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "version", missing)
    assert [name for name in ("torch", "vllm") if doctor.package(name).needed] == ["torch"]


def test_the_sandbox_is_reported_with_its_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = doctor.sandbox()
    assert check.detail.startswith(("forkserver; ", "bubblewrap; ")) is check.ok
    monkeypatch.setenv("AGENTFLY_SANDBOX", "unsafe")
    switched_off = doctor.sandbox()
    assert (switched_off.ok, switched_off.remedy) == (False, "unset AGENTFLY_SANDBOX")


def test_the_table_has_remedies_only_for_missing_things() -> None:
    console = Console(file=io.StringIO(), width=100)
    console.print(
        doctor.table(
            [
                Finding("git", True, "git 2.39", "apt install git"),
                Finding("DVC", False, "-", "dvc init"),
            ]
        )
    )
    assert isinstance(console.file, io.StringIO)
    rows = [line.replace("│", " ").split() for line in console.file.getvalue().splitlines()]
    assert ["yes", "git", "git", "2.39"] in rows
    assert ["NO", "DVC", "-", "dvc", "init"] in rows
