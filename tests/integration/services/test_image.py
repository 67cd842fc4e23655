"""The image for CPUs."""

import shutil
import subprocess

import pytest

from tests.support.installed_wheel import BESIDE, BUILT
from tests.support.project import ROOT


def engine_runs() -> bool:
    """Whether images can be built here."""
    if shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True, check=False).returncode == 0


def test_the_image_is_built_from_the_sources_of_the_wheel() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = {word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]}
    wanted = {*BUILT, *BESIDE} - {"Makefile"}
    assert copied == wanted | {"requirements/cpu.txt"}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {line[1:] for line in ignored if line.startswith("!")} == wanted


@pytest.mark.long
def test_the_image_runs_commands_without_being_root() -> None:
    if not engine_runs():
        pytest.skip("no Docker engine runs here")
    subprocess.run(["make", "image"], cwd=ROOT, check=True)
    docker = ["docker", "run", "--rm", "agentfly-pipelines"]
    assert b"train" in subprocess.check_output(docker)
    assert b"market.yaml" in subprocess.check_output([*docker, "init", "project"])
    who = ["docker", "run", "--rm", "--entrypoint", "id", "agentfly-pipelines", "-un"]
    assert subprocess.check_output(who) == b"agentfly\n"
