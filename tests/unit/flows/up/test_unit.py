"""The unit with which systemd starts `agentfly up` at each boot, as systemd would read it."""

from __future__ import annotations

import configparser
import re
import shlex
import sys
from pathlib import Path

import pytest

from flows.up import unit as units
from flows.up.unit import ALIKE, at_boot, crontab_line, unit, unit_name
from flows.up.worker import GRACE

PROJECT = Path("/home/me/my 100% shöp")


def sections(text: str) -> configparser.ConfigParser:
    """A unit as an ini file, whose keys keep their case."""
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser


def words(command: str) -> list[str]:
    """The words of ExecStart=, systemd.service(5): quotes and backslashes, %% for %, $$ for $."""
    return [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(command)]


def test_the_unit_starts_this_very_program_in_the_project_whatever_is_in_its_path() -> None:
    read = sections(unit(PROJECT, [*ALIKE, "--prefect-port=4201"]))
    service = read["Service"]
    assert service["WorkingDirectory"] == "/home/me/my 100%% shöp"
    assert service["EnvironmentFile"] == "-/home/me/my 100%% shöp/.agentfly/environment"
    assert words(service["ExecStart"]) == [
        sys.executable,
        "-P",
        "-m",
        "flows",
        "up",
        "--prefect-port=4201",
    ]
    assert Path(words(service["ExecStart"])[0]).is_absolute()
    assert read["Install"]["WantedBy"] == "default.target"


def test_a_word_with_quotes_and_dollars_arrives_as_it_is() -> None:
    strange = r"""/opt/a "b"\c$HOME 5%d/python"""
    service = sections(unit(PROJECT, [strange, "up"]))["Service"]
    assert words(service["ExecStart"]) == [strange, "up"]


def test_the_unit_is_given_the_time_in_which_a_flow_run_may_end_what_it_writes() -> None:
    service = sections(unit(PROJECT, ALIKE))["Service"]
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) > GRACE
    assert service["Restart"] == "on-failure"


@pytest.mark.parametrize("name", ["shop", "my 100% shöp", "日本", "-"])
def test_the_name_of_a_unit_is_one_that_systemd_takes_and_no_other_projects(name: str) -> None:
    mine, other = unit_name(Path("/a", name)), unit_name(Path("/b", name))
    assert re.fullmatch(r"agentfly-[A-Za-z0-9-]*[0-9a-f]{8}\.service", mine)
    assert mine != other


def test_a_line_of_crontab_has_no_bare_percent_sign() -> None:
    line = crontab_line(PROJECT, ["/usr/bin/python", "up"])
    assert line == r"@reboot cd '/home/me/my 100\% shöp' && /usr/bin/python up"


def test_with_systemd_the_unit_is_written_and_lingering_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "SYSTEMD", tmp_path)
    monkeypatch.setattr(units, "LINGERING", tmp_path)
    enable, linger = at_boot(tmp_path / "a shop", ["--prefect-port=4201"])
    written = tmp_path / "a shop/.agentfly" / unit_name(tmp_path / "a shop")
    assert shlex.split(enable.partition("systemctl")[2])[-1] == str(written)
    assert "--prefect-port=4201" in sections(written.read_text())["Service"]["ExecStart"]
    assert linger.endswith("loginctl enable-linger")


def test_without_systemd_there_is_a_line_for_crontab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "SYSTEMD", tmp_path / "none")
    (line,) = at_boot(tmp_path, [])
    assert line.endswith("up --detach")
    assert "@reboot cd " in line
