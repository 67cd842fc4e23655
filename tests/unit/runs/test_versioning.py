"""DVC commands of an experiment, its overrides, and the store in its remote."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.config import loading
from agentfly_core.runs import versioning
from agentfly_core.runs.versioning import (
    dataset_version,
    overrides_in,
    pipeline,
    remote,
    reproduce,
)
from tests.support.evaluated_runs import project

NAMED = "[core]\n    remote = x\n"


def test_overrides_are_those_of_params_yaml(tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    params.write_text("experiment: tiny\noverrides: ['update.learning_rate=3e-4', seed=1]\n")
    assert overrides_in(params) == ["update.learning_rate=3e-4", "seed=1"]
    params.write_text("experiment: tiny\n")
    assert overrides_in(params) == []
    params.write_text("overrides: {seed: 1}\n")
    with pytest.raises(ValueError, match=r"overrides: got {'seed': 1}"):
        overrides_in(params)


@pytest.mark.parametrize(
    ("url", "where"),
    [("../../shared", "{folder}/shared/agentfly"), ("s3://bucket/dvc", "s3://bucket/dvc/agentfly")],
)
def test_policies_are_shared_within_the_dvc_remote(tmp_path: Path, url: str, where: str) -> None:
    project = tmp_path / "project"
    (project / ".dvc").mkdir(parents=True)
    config = f"[core]\n    remote = shared\n['remote \"shared\"']\n    url = {url}\n"
    (project / ".dvc/config").write_text(config)
    location = remote(project)
    assert (location if "://" in location else str(Path(location).resolve())) == where.format(
        folder=tmp_path
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("", "DVC's default remote is not set"),
        (
            "[core]\n    remote = x\n['remote \"x\"']\n    url = gs://b/p\n",
            "'x' is gs://b/p, expected",
        ),
    ],
)
def test_a_remote_that_cannot_hold_a_store_is_refused(
    tmp_path: Path, config: str, message: str
) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text(config)
    with pytest.raises(ValueError, match=message):
        remote(tmp_path)


def test_a_remote_with_a_linked_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/agentfly").symlink_to("/")
    (tmp_path / ".dvc").mkdir()
    config = "[core]\n    remote = x\n['remote \"x\"']\n    url = ../shared\n"
    (tmp_path / ".dvc/config").write_text(config)
    with pytest.raises(ValueError, match="shared/agentfly is a symbolic link"):
        remote(tmp_path)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of DVC with the experiments tiny, which its params.yaml names, and other."""
    project(tmp_path)
    for folder in (".dvc/tmp", ".git"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "conf/other.yaml").write_text((tmp_path / "conf/tiny.yaml").read_text())
    (tmp_path / "params.yaml").write_text("experiment: tiny\n")
    (tmp_path / "dvc.yaml").write_text("stages: {}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_experiment_outside_params_yaml_links_the_stages(tiny: Path) -> None:
    assert pipeline("tiny", tiny) == Path("dvc.yaml")
    assert pipeline("other", tiny) == Path("results/other/dvc.yaml")
    own = tiny / "results/other/params.yaml"
    assert own.read_text() == (
        "experiment: other\nroot: ../..\nparams: results/other/params.yaml\noverrides: []\n"
    )
    assert (tiny / "results/other/dvc.yaml").samefile(tiny / "dvc.yaml")
    own.write_text("experiment: other\noverrides: [seed=3]\n")
    pipeline("other", tiny)
    assert overrides_in(own) == ["seed=3"]


def test_a_failed_dvc_build_stops_with_the_last_lines_of_dvc(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "".join(f"line {number}\n" for number in range(1, 40))
    monkeypatch.setattr(versioning, "_quietly", lambda words, project: (255, output))
    with pytest.raises(ValueError, match=r"the data of 'tiny':\nline 25\n(.*\n)*line 39$"):
        dataset_version("tiny", loading.read("tiny").settings, tiny)


@pytest.mark.parametrize(
    ("pointer", "forced"),
    [
        ("", []),
        ("no JSON", ["--force"]),
        ('{"uri": "artifacts/data/of-other-files"}', ["--force"]),
    ],
)
def test_a_dataset_of_other_files_is_built_again(
    pointer: str, forced: list[str], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command: list[str] = []

    def dvc(words: Sequence[str], project: Path) -> tuple[int, str]:
        command.extend(words)
        return 1, f"it {versioning.BUSY} another"

    monkeypatch.setattr(versioning, "_quietly", dvc)
    if pointer:
        (tiny / "results/tiny").mkdir(parents=True)
        (tiny / "results/tiny/dataset.json").write_text(pointer)
    version = dataset_version("tiny", loading.read("tiny").settings, tiny)
    assert version == "none: another DVC command is working on this dataset"
    assert command == ["repro", *forced, "dvc.yaml:prepare"]


@pytest.mark.parametrize("ends", [0, 3])
def test_settings_are_resolved_again_since_own_code_may_have_changed(
    ends: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def dvc(words: list[str], project: Path) -> Any:
        commands.append(words)
        return SimpleNamespace(wait=lambda: ends)

    monkeypatch.setattr(versioning, "_dvc", dvc)
    assert reproduce("tiny", tiny) == ends
    assert (
        commands
        == [
            ["repro", "--force", "--single-item", "dvc.yaml:resolve"],
            ["repro", "dvc.yaml"],
        ][: 1 if ends else 2]
    )
