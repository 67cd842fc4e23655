"""What `agentfly up` says of packages that do not fit, and when it notices other ones."""

from __future__ import annotations

from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from flows.up import versions
from flows.up.versions import Changes, require_matching


class Environment:
    """Packages in a folder, as pip lays them down: `install("prefect", "3.7.7", needs=[...])`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, name: str, version: str, *needs: str, files: str = "a.py,sha256=1,1") -> None:
        info = self.folder / f"{name}.dist-info"
        info.mkdir(exist_ok=True)
        lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
        (info / "METADATA").write_text("\n".join(lines) + "\n\n")
        (info / "RECORD").write_text(files)

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.dist-info" / "METADATA").unlink()

    def distribution(self, name: str) -> PathDistribution:
        info = self.folder / f"{name}.dist-info"
        if not (info / "METADATA").exists():
            raise versions.PackageNotFoundError(name)
        return PathDistribution(info)


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """An environment in which all that AgentFly needs is Prefect and MLflow, and is there."""
    here = Environment(tmp_path)
    monkeypatch.setattr(versions, "distribution", here.distribution)
    here.install("agentfly-pipelines", "0.1.0", "prefect<4,>=3.7", "mlflow[auth]<4,>=3.17")
    here.install("prefect", "3.7.7")
    here.install("mlflow", "3.17.2", 'flask-wtf<2; extra == "auth"', 'torch; extra == "ml"')
    here.install("flask-wtf", "1.3.0")
    return here


def test_what_fits_passes(environment: Environment) -> None:
    require_matching()


def test_another_version_is_told_with_what_was_expected(environment: Environment) -> None:
    environment.install("prefect", "4.0.1")
    with pytest.raises(
        ValueError, match=r"prefect 4\.0\.1 is installed, expected prefect<4,>=3\.7"
    ):
        require_matching()


def test_what_mlflow_needs_to_ask_for_a_password_is_missed_by_name(
    environment: Environment,
) -> None:
    environment.remove("flask-wtf")
    with pytest.raises(ValueError, match=r"flask-wtf is missing.*agentfly requirements"):
        require_matching()


def test_what_is_installed_here_fits() -> None:
    require_matching()


def test_another_version_is_noticed_once_it_is_whole(environment: Environment) -> None:
    changes = Changes()
    assert changes.version() is None
    environment.remove("agentfly-pipelines")
    assert changes.version() is None
    environment.install("agentfly-pipelines", "0.2.0")
    assert changes.version() is None, "pip may still be writing"
    assert changes.version() == "0.2.0"


def test_the_same_version_with_other_files_is_noticed_too(environment: Environment) -> None:
    changes = Changes()
    environment.install("mlflow", "3.17.2", files="a.py,sha256=2,1")
    assert [changes.version(), changes.version()] == [None, "0.1.0"]


def test_what_was_put_back_is_no_change(environment: Environment) -> None:
    changes = Changes()
    environment.install("prefect", "3.7.8", files="b.py,,")
    assert changes.version() is None
    environment.install("prefect", "3.7.7")
    assert [changes.version(), changes.version()] == [None, None]
