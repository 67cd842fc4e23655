"""A test's tier follows from the fixtures that it uses."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.project import ROOT

pytestmark = pytest.mark.slow

CONFTEST = """
import pytest
from tests.support.tiers import mark_by_fixtures

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    mark_by_fixtures(items)

@pytest.fixture
def service_address(): ...
@pytest.fixture
def smollm2(): ...
@pytest.fixture
def prefect_api(service_address): ...
@pytest.fixture
def workers(service_address): ...
@pytest.fixture
def lives(prefect_api): ...
"""
TESTS = """
def test_plain(): ...
def test_model(smollm2): ...
def test_server(service_address): ...
def test_run(lives): ...
def test_update(workers): ...
"""


def collected(
    root: Path, monkeypatch: pytest.MonkeyPatch, folder: str, chosen: str
) -> subprocess.CompletedProcess[str]:
    """The chosen tests of a project whose tests are in a folder."""
    (root / folder).mkdir(parents=True)
    (root / "conftest.py").write_text(CONFTEST)
    (root / folder / "test_some.py").write_text(TESTS)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q"]
    command += ["--rootdir", str(root), "-m", chosen, str(root)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ("not service and not smollm2", ["test_plain"]),
        ("prefect", ["test_run"]),
        ("service and not prefect", ["test_server", "test_update"]),
        ("learner", ["test_update"]),
    ],
)
def test_fixtures_decide_the_tier_of_a_test(tmp_path, monkeypatch, chosen, expected):
    done = collected(tmp_path, monkeypatch, "tests/integration/services", chosen)
    selected = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert selected == expected


def test_a_misplaced_test_with_a_service_is_refused(tmp_path, monkeypatch):
    done = collected(tmp_path, monkeypatch, "tests/unit", "service")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "move it to tests/integration/services" in done.stderr
