"""The overrides with which DVC tries an experiment, and where its remote keeps policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentfly_core.runs.versioning import overrides_in, remote

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
        ("", "DVC has no default remote here"),
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
