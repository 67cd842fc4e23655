"""`agentfly init` writes a complete project with our DVC and Prefect files."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.experiment.keys import PLAY
from agentfly_core.experiment.user_code import COUNTED
from flows.__main__ import main
from flows.new_project import template
from tests.support.project import ROOT


def file_of_ours(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text())


def shipped(name: str) -> Any:
    return yaml.safe_load(template()[name])


def test_the_new_project_has_a_valid_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my shöp"
    assert main(["init", str(folder)]) == 0
    written = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    assert {name for name in written if not name.startswith(".git/")} == template().keys()
    assert (folder / ".git").is_dir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    settings = loading.read("market").settings
    checks.check(settings)
    checks.check_beginning(settings)


def test_no_file_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "market.py").write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    assert "already has market.py. Nothing was written" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["market.py"]


def test_a_folder_within_a_repository_gets_no_new_one(tmp_path: Path) -> None:
    assert main(["init", str(tmp_path)]) == 0
    assert main(["init", str(tmp_path / "second")]) == 0
    assert not (tmp_path / "second" / ".git").exists()


def test_its_pipeline_is_ours_except_for_the_watched_code() -> None:
    ours, theirs = file_of_ours("dvc.yaml")["stages"], shipped("dvc.yaml")["stages"]
    for stage in (*ours.values(), *theirs.values()):
        stage.pop("deps", None)
    assert theirs == ours
    pipeline = template()["dvc.yaml"]
    assert "agentfly_core\n" not in pipeline


def test_pipeline_stages_depend_on_the_settings_they_read() -> None:
    stages = file_of_ours("dvc.yaml")["stages"]
    read = {name: {*next(iter(stage["params"][0].values()))} for name, stage in stages.items()}
    assert all({*PLAY} <= read[name] for name in ("warm_start", "train", "evaluate"))
    assert {f"code.{stage}" for stage in COUNTED} <= set.union(*read.values())


def test_its_deployments_are_ours_with_its_own_experiment() -> None:
    ours, theirs = (
        file_of_ours("prefect.yaml")["deployments"],
        shipped("prefect.yaml")["deployments"],
    )
    assert [one.pop("parameters") for one in theirs] == [{"experiment": "market"}] * len(ours)
    assert theirs == ours
    assert all(one["entrypoint"].startswith("flows.") for one in theirs), "found without a clone"


@pytest.mark.parametrize("machine", ["cpu", "gpu"])
def test_the_pinned_lists_are_printed_as_they_are(
    machine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["requirements", machine]) == 0
    assert capsys.readouterr().out == (ROOT / f"requirements/{machine}.txt").read_text()
