"""Who owns something on disk, and whether it still lives: nothing that moves with the system's
clock decides it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.system.formats import strict_json
from agentfly_core.system.process import Owner, mark_alive, marked, own_mark
from agentfly_core.system.service import gone
from agentfly_core.system.supervisor import die_with_parent
from tests.support.clocks import set_clock


@pytest.fixture
def dead() -> Owner:
    """A process of this machine that has ended; nobody else has its pid."""
    with subprocess.Popen(["true"], preexec_fn=die_with_parent) as process:
        process.wait()
    return replace(Owner.current(), pid=process.pid)


@pytest.mark.parametrize("hour", [3600, -3600])
def test_an_owner_lives_on_when_the_clock_is_set(
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


def test_an_owner_is_more_than_its_pid() -> None:
    mine = Owner.current()
    for other in (replace(mine, ticks=mine.ticks + 1), replace(mine, boot="an earlier boot")):
        assert not other.alive
        assert not mark_alive(f".tmp-scored-{other.mark}")
        assert gone(json.dumps(other.to_json()))


def test_a_fork_does_not_have_the_mark_of_the_process_that_it_was() -> None:
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


def test_a_process_that_ended_and_was_not_waited_for_is_dead() -> None:
    process = subprocess.Popen(["true"], preexec_fn=die_with_parent)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not replace(Owner.current(), pid=process.pid, ticks=ticks(process.pid)).alive
    process.wait()


def test_a_program_may_have_any_name(tmp_path: Path) -> None:
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
def test_a_temporary_name_of_somebody_else_is_no_dead_process_of_ours(name: str) -> None:
    assert not marked(name)
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
def test_what_is_no_owner_is_refused_and_nobody_is_taken_for_dead(written: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        Owner.of(strict_json.parse(written.decode()))
    assert not gone(os.fsdecode(written))


def test_a_process_that_the_system_hides_from_other_users_counts_as_alive(
    monkeypatch: pytest.MonkeyPatch, dead: Owner
) -> None:
    def refuse(*_: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert dead.alive
