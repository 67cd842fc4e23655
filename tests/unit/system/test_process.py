"""Owners of files and whether they are alive, independent of the system clock."""

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.system.formats import strict_json
from agentfly_core.system.process import Owner, mark_alive, own_mark
from agentfly_core.system.service import gone
from agentfly_core.system.supervisor import die_with_parent
from tests.support.clocks import set_clock


@pytest.fixture
def dead() -> Owner:
    """An ended process of this machine; its pid is free."""
    with subprocess.Popen(["true"], preexec_fn=die_with_parent) as process:
        process.wait()
    return replace(Owner.current(), pid=process.pid)


@pytest.mark.parametrize("hour", [3600, -3600])
def test_an_owner_is_alive_after_the_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, hour: int
) -> None:
    owner = Owner.current()
    name = f".tmp-scored-{owner.mark}"
    set_clock(monkeypatch, hour)
    assert Owner.current().started != owner.started
    assert owner.alive
    assert mark_alive(name)
    assert Owner.current().mark == owner.mark
    assert not gone(json.dumps(owner.to_json()))


def test_an_owner_is_identified_by_more_than_its_pid() -> None:
    mine = Owner.current()
    for other in (replace(mine, ticks=mine.ticks + 1), replace(mine, boot="an earlier boot")):
        assert not other.alive
        assert not mark_alive(f".tmp-scored-{other.mark}")
        assert gone(json.dumps(other.to_json()))


def test_a_fork_has_its_own_mark() -> None:
    mine = own_mark()
    assert mine == Owner.current().mark
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, own_mark().encode())
        os._exit(0)
    os.waitpid(child, 0)
    host, pid, *_ = os.read(reading, 100).decode().split("-")
    assert (host, int(pid)) == (mine.partition("-")[0], child)


def ticks(pid: int) -> int:
    """The start of a process: proc(5) counts from the end, whatever the program's name."""
    return int(Path(f"/proc/{pid}/stat").read_bytes().split()[-31])


def test_a_zombie_process_is_dead() -> None:
    process = subprocess.Popen(["true"], preexec_fn=die_with_parent)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not replace(Owner.current(), pid=process.pid, ticks=ticks(process.pid)).alive
    process.wait()


def test_a_program_can_have_any_name(tmp_path: Path) -> None:
    program = os.fsencode(tmp_path) + b"/a) Z 1 \xff"
    shutil.copy("/bin/sleep", program)
    with subprocess.Popen([program, "60"], preexec_fn=die_with_parent) as process:
        assert replace(Owner.current(), pid=process.pid, ticks=ticks(process.pid)).alive
        process.kill()


@pytest.mark.parametrize(
    "name",
    [".tmp-foo", ".tmp-", ".tmp-a-b-c-d", ".tmp-x-1-2-3", ".tmp-\udcff-a41f-1-1"],
    ids=ascii,
)
def test_a_foreign_temporary_name_is_not_taken_for_ours(name: str) -> None:
    assert mark_alive(name)


@pytest.mark.parametrize(
    "written",
    [
        b"",
        b"\0" * 90,
        b"\xff\xfe",
        b"[]",
        b"[" * 5000,
        b'{"host": "node7", "pid": 47',
        b'{"host": "node7", "pid": "4711", "started": 1.5, "boot": "0c5d"}',
        b'{"host": "node7", "pid": 4711, "started": 1.5, "boot": "0c5d"}',
        b'{"host": "node7", "pid": 0, "started": 1.5, "boot": "0c5d", "ticks": 1}',
        b'{"host": "node7", "pid": 1e3, "started": 1.5, "boot": "0c5d", "ticks": 1}',
        b'{"host": "node7", "pid": 99999999999, "started": 1.5, "boot": "0c5d", "ticks": 1}',
        b'{"host": "node7", "pid": 4711, "started": 1.5, "boot": "0c5d", "ticks": "1"}',
    ],
)
def test_an_invalid_owner_is_refused(written: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Owner.of(strict_json.parse(written.decode()))
    assert not gone(os.fsdecode(written))


def test_a_hidden_process_counts_as_alive(monkeypatch: pytest.MonkeyPatch, dead: Owner) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert dead.alive
