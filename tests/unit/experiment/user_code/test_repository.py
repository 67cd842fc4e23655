"""The author's repository: its commit, and what is not committed, without secrets."""

import subprocess

import pytest

from agentfly_core.experiment.user_code.repository import LONGEST, repository


@pytest.fixture
def checkout(tmp_path):
    def git(*words):
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    git("init")
    (tmp_path / "tools.py").write_text("X = 1\n")
    git("add", ".")
    git("commit", "-m", "first")
    return tmp_path


def test_a_clean_repository_has_a_commit_and_no_change(checkout):
    found = repository(checkout)
    assert len(found.commit) == 40
    assert found.revision == {"commit": found.commit, "dirty": ""}


def test_a_change_and_new_sources_are_kept_without_secrets(checkout, monkeypatch):
    monkeypatch.setenv("SHOP_TOKEN", "tk_93kd81Xq")
    (checkout / "tools.py").write_text("X = 'tk_93kd81Xq'\n")
    (checkout / "new.py").write_text("Y = 2\n")
    (checkout / "picture.png").write_bytes(b"\x89PNG")
    found = repository(checkout)
    assert "+X = '[SHOP_TOKEN]'" in found.change
    assert "+Y = 2" in found.change
    assert "picture" not in found.change
    assert len(found.revision["dirty"]) == 16


def test_what_agentfly_writes_into_the_folder_is_no_source(checkout):
    for name in (".agentfly/sign-in.json", "runs/demo/run.json", "sub/artifacts/a/MANIFEST.json"):
        (checkout / name).parent.mkdir(parents=True)
        (checkout / name).write_text('{"password": "f3Qk"}\n')
    (checkout / "prices.json").write_text('{"tea": 4}\n')
    found = repository(checkout).change
    assert '+{"tea": 4}' in found
    assert "password" not in found


def test_a_very_long_change_is_cut(checkout):
    (checkout / "tools.py").write_text("X = 1\n" * 2**17)
    assert LONGEST < len(repository(checkout).change) < LONGEST + 100


def test_a_folder_in_no_repository_has_none(tmp_path):
    assert repository(tmp_path) is None
