"""The unit with which systemd starts `agentfly up` at each boot, as systemd would read it."""

from __future__ import annotations

import configparser
import re
import shlex
import sys
from pathlib import Path

import pytest

from flows.up import unit as units
from flows.up.serving import GRACE
from flows.up.unit import at_boot


def sections(text: str) -> configparser.ConfigParser:
    """Read a unit as an ini file with case-sensitive keys."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser


def words(command: str) -> list[str]:
    """The words of ExecStart=, systemd.service(5): quotes and backslashes, %% for %, $$ for $."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an awkward name on a machine that systemd runs."""
    monkeypatch.setattr(units, "SYSTEMD", tmp_path)
    return tmp_path / "my 100% shöp"


def unit_of(project: Path) -> configparser.SectionProxy:
    """The section [Service] of the unit that is written for a project."""
    at_boot(project, (4201, 5001))
    (path,) = (project / ".agentfly").glob("*.service")
    return sections(path.read_text())["Service"]


def test_the_unit_starts_this_very_program_in_the_project_whatever_is_in_its_path(
    project: Path,
) -> None:
    service, escaped = unit_of(project), str(project).replace("%", "%%")
    assert service["WorkingDirectory"] == escaped
    assert service["EnvironmentFile"] == f"-{escaped}/.agentfly/environment"
    command = [sys.executable, "-P", "-m", "flows", "up"]
    command += ["--prefect-port=4201", "--mlflow-port=5001"]
    assert words(service["ExecStart"]) == command
    assert Path(command[0]).is_absolute()


def test_a_word_with_quotes_and_dollars_arrives_as_it_is(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = r"""/opt/a "b"\c$HOME 5%d/python"""
    monkeypatch.setattr(sys, "executable", strange)
    assert words(unit_of(project)["ExecStart"])[0] == strange


def test_the_unit_is_given_the_time_in_which_a_flow_run_may_end_what_it_writes(
    project: Path,
) -> None:
    service = unit_of(project)
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > GRACE
    assert service["Restart"] == "on-failure"


def test_a_project_that_cannot_start_is_not_started_for_ever(project: Path) -> None:
    at_boot(project, (4201, 5001))
    (path,) = (project / ".agentfly").glob("*.service")
    unit = sections(path.read_text())["Unit"]
    assert (unit["StartLimitIntervalSec"], unit["StartLimitBurst"]) == ("900", "5")


def test_with_systemd_the_unit_is_enabled_by_a_name_that_no_other_project_has(
    project: Path,
) -> None:
    enable, linger = at_boot(project, (4201, 5001))
    path = Path(shlex.split(enable.partition("systemctl")[2])[-1])
    assert path.parent == project / ".agentfly"
    assert re.fullmatch(r"agentfly-[0-9a-f]{8}\.service", path.name)
    assert path.name not in at_boot(project / "other", (4201, 5001))[0]
    assert linger.endswith("loginctl enable-linger")


def test_without_systemd_there_is_a_line_for_crontab(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "SYSTEMD", project / "none")
    (line,) = at_boot(project, (4201, 5001))
    assert line.endswith("up --prefect-port=4201 --mlflow-port=5001 --detach")
    escaped = str(project).replace("%", r"\%")
    assert f"@reboot cd '{escaped}' && " in line, "a bare % ends the command"
