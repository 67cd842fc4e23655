"""The systemd unit that starts `agentfly up` at each boot, parsed like systemd."""

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
    """Split ExecStart= by systemd.service(5): quotes and backslashes, %% for %, $$ for $."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an awkward name on a machine with systemd."""
    monkeypatch.setattr(units, "SYSTEMD", tmp_path)
    return tmp_path / "my 100% shöp"


def unit_of(project: Path) -> configparser.SectionProxy:
    """Return the section [Service] of the unit of a project."""
    at_boot(project, (4201, 5001))
    (path,) = (project / ".agentfly").glob("*.service")
    return sections(path.read_text())["Service"]


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


def test_a_word_with_quotes_and_dollars_arrives_as_it_is(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strange = r"""/opt/a "b"\c$HOME 5%d/python"""
    monkeypatch.setattr(sys, "executable", strange)
    assert words(unit_of(project)["ExecStart"])[0] == strange


def test_the_unit_allows_flow_runs_the_time_to_stop(
    project: Path,
) -> None:
    service = unit_of(project)
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > GRACE
    assert service["Restart"] == "on-failure"


def test_a_project_that_cannot_start_is_not_retried_forever(project: Path) -> None:
    at_boot(project, (4201, 5001))
    (path,) = (project / ".agentfly").glob("*.service")
    unit = sections(path.read_text())["Unit"]
    assert (unit["StartLimitIntervalSec"], unit["StartLimitBurst"]) == ("900", "5")


def test_the_unit_is_enabled_by_a_unique_name(
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
