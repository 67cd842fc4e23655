"""The systemd unit that starts `agentfly up` at each boot, parsed like systemd."""

import configparser
import re
import shlex
import sys
from pathlib import Path

import pytest

from flows.local.up import GRACE, write_unit


def sections(text: str) -> configparser.ConfigParser:
    """Read a unit as an ini file with case-sensitive keys."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser


def words(command: str) -> list[str]:
    """Split ExecStart= by systemd.service(5): quotes, %% for %."""
    return [word.replace("%%", "%") for word in shlex.split(command)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with an awkward name."""
    return tmp_path / "my 100% shöp"


def unit_of(project: Path) -> configparser.SectionProxy:
    """Return the section [Service] of the unit of a project."""
    return sections(write_unit(project, (4201, 5001)).read_text())["Service"]


def test_the_unit_starts_this_program_for_any_project_path(
    project: Path,
) -> None:
    service, escaped = unit_of(project), str(project).replace("%", "%%")
    assert service["WorkingDirectory"] == escaped
    assert service["EnvironmentFile"] == f"-{escaped}/.agentfly/environment"
    command = [sys.executable, "-P", "-m", "flows", "up"]
    command += ["--prefect-port=4201", "--mlflow-port=5001"]
    assert words(service["ExecStart"]) == command
    assert Path(command[0]).is_absolute()


def test_the_unit_allows_flow_runs_the_time_to_stop(
    project: Path,
) -> None:
    service = unit_of(project)
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > GRACE
    assert service["Restart"] == "on-failure"


def test_a_project_that_cannot_start_is_not_retried_forever(project: Path) -> None:
    unit = sections(write_unit(project, (4201, 5001)).read_text())["Unit"]
    assert (unit["StartLimitIntervalSec"], unit["StartLimitBurst"]) == ("900", "5")


def test_the_unit_has_a_name_of_its_own(project: Path) -> None:
    path = write_unit(project, (4201, 5001))
    assert path.parent == project / ".agentfly"
    assert re.fullmatch(r"agentfly-[0-9a-f]{8}\.service", path.name)
    assert path.name != write_unit(project / "other", (4201, 5001)).name
