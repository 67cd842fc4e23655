"""An empty folder becomes a project that learns, with what the wheel holds and no clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.project import ROOT, Project

BUILT = ("agentfly_core", "flows", "tasks", "requirements")
BESIDE = ("pyproject.toml", "README.md", "LICENSE")
NAME = "my markets, früh"


@pytest.mark.long
def test_in_an_empty_folder_with_any_name_init_makes_an_experiment_that_learns(
    tmp_path: Path, prefect_api: str
) -> None:
    project = Project(tmp_path / NAME, PREFECT_API_URL=prefect_api)
    project.root.mkdir()
    project.run("agentfly", "init", ".")
    training = project.start("agentfly", "train", "market")
    printed, _ = training.communicate(timeout=1800)
    assert training.returncode == 0, printed
    (summary,) = (project.root / "runs").glob("*/summary.json")
    found = json.loads(summary.read_text())
    assert found["interval_after"][0] > found["interval_before"][1]


@pytest.mark.long
def test_the_wheel_alone_makes_a_project_and_shows_its_settings(tmp_path: Path) -> None:
    python = installed(tmp_path)
    env = {key: os.environ[key] for key in ("HOME", "PATH") if key in os.environ}

    def run(*words: str, at: Path = tmp_path) -> str:
        return subprocess.check_output([str(word) for word in words], cwd=at, env=env, text=True)

    agentfly = str(python.with_name("agentfly"))
    where = run(str(python), "-c", "import agentfly_core; print(agentfly_core.__file__)")
    assert Path(where).is_relative_to(tmp_path)
    run(agentfly, "init", NAME)
    assert "market:questions" in run(agentfly, "config", "market", at=tmp_path / NAME)
    assert run(agentfly, "requirements", "cpu") == (ROOT / "requirements/cpu.txt").read_text()


def installed(folder: Path) -> Path:
    """The Python of an environment with this project's wheel, where what that asks for comes from
    the environment of the tests.
    """
    source = folder / "source"
    for name in BUILT:
        shutil.copytree(ROOT / name, source / name, symlinks=True)
    for name in BESIDE:
        shutil.copy(ROOT / name, source)
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "-w", folder, source], check=True)
    shutil.rmtree(source)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    python = folder / "venv/bin/python"
    subprocess.run([*pip, "--python", python, "install", "--no-deps", wheel], check=True)
    packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
    # by a line of its own, which makes nothing of the editable installations there
    Path(packages, "beside.pth").write_text(sysconfig.get_path("purelib"))
    return python
