"""The wheel, installed without a clone."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.installed_wheel import installed
from tests.support.project import ROOT


@pytest.mark.slow
def test_the_wheel_contains_all_that_a_new_project_needs(tmp_path: Path) -> None:
    python, project = installed(tmp_path), tmp_path / "project"
    agentfly = str(python.with_name("agentfly"))
    env = {"HOME": str(tmp_path), "PATH": os.defpath, "AGENTFLY_LOCKS": str(tmp_path)}

    def run(*words: str, at: Path = tmp_path) -> str:
        return subprocess.check_output(words, cwd=at, env=env, text=True)

    where = run(str(python), "-c", "import agentfly_core; print(agentfly_core.__file__)")
    assert Path(where).is_relative_to(tmp_path)
    assert "train" in run(agentfly, "--help")
    lock = run(agentfly, "requirements", "cpu")
    assert lock == (ROOT / "requirements/cpu.txt").read_text()
    run(agentfly, "init", str(project))
    assert "market:questions" in run(agentfly, "config", "market", at=project)
    data = [path for path in (ROOT / "agentfly_core").rglob("*.*") if ".py" not in path.suffix]
    names = {path.relative_to(ROOT).as_posix() for path in data}
    names |= {"flows/nights/automations.yaml", "flows/local/agentfly.service"}
    assert "agentfly_core/sandbox/attacks.toml" in names
    assert {name for name in names if not (Path(where).parents[1] / name).is_file()} == set()
