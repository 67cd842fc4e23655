"""Completion of experiments, runs and settings, as bash, zsh and fish offer it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Literal

import pytest

from flows.cli.app import agentfly
from flows.cli.completion import without_space
from tests.support.project import PROGRAMS, ROOT

IN_BASH = """
source "$1"
compopt() { echo "compopt $*"; }
offer() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _agentfly_settings; echo "${COMPREPLY[@]}"; }
offer agentfly train ""
offer agentfly train tiny update.learning_rate=3e-4 rollout.gr
offer agentfly show ti
"""
IN_FISH = """
source $argv[1]
complete -C "agentfly train "
complete -C "agentfly train tiny update.learning_rate=3e-4 rollout.gr"
complete -C "agentfly show ti"
"""
OFFERED = ["tiny", "rollout.group_size=", "tiny-1a2b3c4d"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with an experiment and a run."""
    (tmp_path / "conf").mkdir()
    shutil.copy(ROOT / "tests/conf/tiny.yaml", tmp_path / "conf")
    (tmp_path / "runs/tiny-1a2b3c4d").mkdir(parents=True)
    return tmp_path


def printed(project: Path, shell: Literal["bash", "fish", "zsh"], *options: str) -> list[str]:
    """The lines that a shell prints with these options and the path of its script."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    script = project / f"completion.{shell}"
    script.write_text(without_space(agentfly([]).generate_completion(shell=shell)))
    env = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(project)}
    command = [program, *options, str(script)]
    return subprocess.check_output(command, cwd=project, env=env, text=True).splitlines()


@pytest.mark.slow
def test_bash_offers_them_and_lets_a_value_follow_a_setting(project: Path) -> None:
    name, run = OFFERED[0], OFFERED[2]
    expected = [name, "compopt -o nospace", "rollout.group_size=", run]
    assert printed(project, "bash", "-c", IN_BASH, "bash") == expected


@pytest.mark.slow
def test_fish_offers_them(project: Path) -> None:
    lines = printed(project, "fish", "-c", IN_FISH)
    assert [line for line in lines if line.split("\t")[0] in OFFERED] == OFFERED


def test_the_script_for_zsh_has_no_syntax_error(project: Path) -> None:
    assert printed(project, "zsh", "-n") == []


def test_zsh_completes_values_directly_after_a_setting() -> None:
    script = without_space(agentfly([]).generate_completion(shell="zsh"))
    assert "_cyc_cmd __complete" in script
    assert """[[ "${_cyc_vals[1]}" == *= ]] && _cyc_end=(-S '')""" in script
