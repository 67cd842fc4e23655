"""What DVC is asked for an experiment, its overrides, and where its remote keeps policies."""

from __future__ import annotations

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
from tests.support.tried_runs import project

NAMED = "[core]\n    remote = x\n"


def test_overrides_are_those_of_params_yaml(tmp_path: Path) -> None:
    params = tmp_path / "params.yaml"
    params.write_text("experiment: tiny\noverrides: ['update.learning_rate=3e-4', seed=1]\n")
    assert overrides_in(params) == ["update.learning_rate=3e-4", "seed=1"]
    params.write_text("experiment: tiny\n")
    assert overrides_in(params) == []
    params.write_text("overrides: {seed: 1}\n")
    with pytest.raises(ValueError, match=r"overrides: got {'seed': 1}, expected a list of key=val"):
        overrides_in(params)


@pytest.mark.parametrize(
    ("url", "where"),
    [("../../shared", "{folder}/shared/agentfly"), ("s3://bucket/dvc", "s3://bucket/dvc/agentfly")],
)
def test_policies_are_shared_beside_what_dvc_shares(tmp_path: Path, url: str, where: str) -> None:
    project = tmp_path / "project"
    (project / ".dvc").mkdir(parents=True)
    config = f"[core]\n    remote = shared\n['remote \"shared\"']\n    url = {url}\n"
    (project / ".dvc/config").write_text(config)
    found = remote(project)
    assert (found if "://" in found else str(Path(found).resolve())) == where.format(
        folder=tmp_path
    )


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("", "DVC's default remote is not set"),
        (
            "[core]\n    remote = x\n['remote \"x\"']\n    url = gs://b/p\n",
            "'x' is gs://b/p, expected",
        ),
    ],
)
def test_a_remote_that_no_store_can_be_is_refused(tmp_path: Path, config: str, told: str) -> None:
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc/config").write_text(config)
    with pytest.raises(ValueError, match=told):
        remote(tmp_path)


def test_a_remote_whose_folder_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/agentfly").symlink_to("/")
    (tmp_path / ".dvc").mkdir()
    config = "[core]\n    remote = x\n['remote \"x\"']\n    url = ../shared\n"
    (tmp_path / ".dvc/config").write_text(config)
    with pytest.raises(ValueError, match="shared/agentfly is a link, which may lead anywhere"):
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


def test_an_experiment_that_params_yaml_does_not_name_has_a_link_to_the_stages(tiny: Path) -> None:
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


def test_data_that_dvc_cannot_build_stops_with_the_end_of_what_it_said(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "".join(f"line {number}\n" for number in range(1, 40))
    monkeypatch.setattr(versioning, "_quietly", lambda words, project: (255, said))
    with pytest.raises(ValueError, match=r"the data of 'tiny':\nline 25\n(.*\n)*line 39$"):
        dataset_version("tiny", loading.read("tiny").settings, tiny)


@pytest.mark.parametrize(
    ("known", "forced"),
    [
        ("", []),
        ("no JSON", ["--force"]),
        ('{"uri": "artifacts/data/of-other-files"}', ["--force"]),
    ],
)
def test_a_dataset_of_other_files_or_in_doubt_is_built_anew(
    known: str, forced: list[str], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def dvc(words: Sequence[str], project: Path) -> tuple[int, str]:
        said.extend(words)
        return 1, f"it {versioning.BUSY} another"

    monkeypatch.setattr(versioning, "_quietly", dvc)
    if known:
        (tiny / "results/tiny").mkdir(parents=True)
        (tiny / "results/tiny/dataset.json").write_text(known)
    version = dataset_version("tiny", loading.read("tiny").settings, tiny)
    assert version == "none: another DVC command is working on it"
    assert said == ["repro", *forced, "dvc.yaml:prepare"]


@pytest.mark.parametrize("ends", [0, 3])
def test_where_code_of_the_authors_was_edited_the_settings_are_resolved_anew(
    ends: int, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[list[str]] = []

    def dvc(words: list[str], project: Path) -> Any:
        said.append(words)
        return SimpleNamespace(wait=lambda: ends)

    monkeypatch.setattr(versioning, "_dvc", dvc)
    (tiny / "results/tiny").mkdir(parents=True)
    (tiny / "results/tiny/config.yaml").write_text("code: {prepare: {tests.support.problems: 1f}}")
    assert reproduce("tiny", tiny) == ends
    assert (
        said
        == [
            ["repro", "--force", "--single-item", "dvc.yaml:resolve"],
            ["repro", "dvc.yaml"],
        ][: 1 if ends else 2]
    )
