from __future__ import annotations

import io
import socket
from pathlib import Path

import pytest
from rich.console import Console

from agentfly_core.tracking.mlflow_client import MlflowStore
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


def test_a_missing_mlflow_server_is_reported(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, without a listener
        place = MlflowStore.choose(tmp_path, f"http://127.0.0.1:{unused.getsockname()[1]}")
        finding = doctor.mlflow(place)
    assert not finding.ok
    assert (
        f"{place.uri} (mlflow_tracking_uri of the site): [Errno 111] Connection refused"
        in finding.detail
    )


def test_a_missing_prefect_server_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        api = f"http://127.0.0.1:{unused.getsockname()[1]}/api"
        finding = doctor.prefect(api)
    assert not finding.ok
    assert f"{api}: " in finding.detail


def test_a_damaged_mlflow_database_is_reported(tmp_path: Path) -> None:
    place = MlflowStore.choose(tmp_path / "project", f"sqlite:///{tmp_path}/project/mlflow.db")
    assert doctor.mlflow(place).ok
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "mlflow.db").write_text("not a database, " * 100)
    assert doctor.mlflow(place).detail.endswith("file is not a database")


def test_a_port_in_use_is_named_with_its_use() -> None:
    with socket.socket() as user:
        user.bind(("127.0.0.1", 0))
        user.listen()
        finding = doctor.port(user.getsockname()[1], "the MLflow UI")
    assert (finding.ok, finding.detail) == (False, "for the MLflow UI: Address already in use")


def test_s3_is_possible_as_soon_as_there_are_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in doctor.CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    assert not doctor.s3().ok
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert doctor.s3().ok
    assert "team" not in doctor.s3().detail


def test_the_sandbox_is_reported_with_its_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check = doctor.sandbox()
    assert check.detail.startswith(("forkserver: ", "bubblewrap: ")) is check.ok
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


@pytest.mark.parametrize(
    ("flags", "ok", "detail"),
    [
        ("fpu avx512f avx512_bf16", True, "avx512_bf16 on the CPU"),
        ("fpu avx2 sse4_2", False, "none on the CPU"),
    ],
)
def test_bfloat16_support_of_the_processor_is_reported(
    flags: str, ok: bool, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda path: f"flags : {flags}")
    assert (doctor.bfloat16().ok, doctor.bfloat16().detail) == (ok, detail)
