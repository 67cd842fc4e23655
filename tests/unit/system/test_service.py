"""A service lives as long as its owner, is restarted after a death, and leaves no process."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from agentfly_core.system.process import Owner
from agentfly_core.system.service import (
    OWNER,
    RUN,
    Service,
    ServiceLost,
    end_orphans,
    new_address,
    supervised,
)
from agentfly_core.system.supervisor import ChildState, die_with_parent
from tests.support.clocks import set_clock
from tests.support.waiting import LIMIT

pytestmark = pytest.mark.slow

# Answers each connection with the process ids of a family: itself, a child, and an orphaned
# grandchild in its own session.
FAMILY = """
import json, os, signal, socket, sys
def born(act):
    reading, writing = os.pipe()
    if os.fork() == 0:
        act(writing)
    return int(os.read(reading, 20))
def child(writing):
    os.write(writing, str(os.getpid()).encode())
    signal.pause()
def lost_grandchild(writing):
    os.setsid()
    if os.fork() == 0:
        child(writing)
    os._exit(0)
pids = [os.getpid(), born(child), born(lost_grandchild)]
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
while True:
    connection, _ = listening.accept()
    connection.sendall(json.dumps(pids).encode())
    connection.close()
"""

# Owns a family as a flow owns vLLM, and has a forked child that inherits its open files, as process
# pools do.
FLOW = """
import os, signal, sys
from pathlib import Path
from agentfly_core.system.service import supervised
address, log, run, program = sys.argv[1:]
command = [sys.executable, "-c", program, address]
with supervised("family", command, {}, Path(address), Path(log), run):
    if os.fork() == 0:
        os.close(1)
        signal.pause()
    print("started", flush=True)
    signal.pause()
"""


@pytest.fixture()
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="agentfly-", ignore_cleanup_errors=True) as path:
        yield Path(path)


@pytest.fixture()
def flow(folder: Path) -> Iterator[tuple[psutil.Popen, Service]]:
    address = str(folder / "a" / "family.sock")
    command = [sys.executable, "-c", FLOW, address, str(folder / "family.log"), "run-a", FAMILY]
    process = psutil.Popen(command, stdout=-1, start_new_session=True, preexec_fn=die_with_parent)
    assert process.stdout.readline() == b"started\n"
    yield process, Service("family", address)
    os.killpg(process.pid, signal.SIGKILL)


def family(folder: Path, name: str = "a", restarts: int = 3) -> AbstractContextManager[Service]:
    address = folder / name / "family.sock"
    command = [sys.executable, "-c", FAMILY, str(address)]
    return supervised(
        "family", command, {}, address, folder / "family.log", f"run-{name}", restarts
    )


def program(folder: Path, text: str) -> AbstractContextManager[Service]:
    address = folder / "a" / "program.sock"
    return supervised(
        "program",
        [sys.executable, "-c", text],
        {},
        address,
        folder / "program.log",
        "run-a",
        restarts=1,
    )


def pids(service: Service) -> list[int]:
    """The family's process ids, or nothing while it does not listen."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(service.address)
            return list(json.loads(connection.recv(1000) or b"[]"))
        except OSError:
            return []


def members(service: Service, but: Sequence[psutil.Process] = ()) -> list[psutil.Process]:
    """The family's processes, once a new family listens."""
    service.wait(
        lambda: bool(pids(service)) and pids(service)[0] not in [known.pid for known in but], LIMIT
    )
    return [psutil.Process(pid) for pid in pids(service)]


def supervisor(service: Service) -> psutil.Process:
    state = ChildState.read(service.address)
    assert state is not None
    return psutil.Process(state.keeper)


def left(processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    return list(psutil.wait_procs(processes, timeout=LIMIT)[1])


def test_the_end_of_the_block_removes_processes_and_folder(folder: Path) -> None:
    with family(folder) as service:
        processes = [*members(service), supervisor(service)]
        assert len(processes) == 4
    assert left(processes) == []
    assert not (folder / "a").exists()


def test_kill_9_of_the_owner_leaves_no_process(
    flow: tuple[psutil.Popen, Service],
) -> None:
    owner, service = flow
    processes = [*members(service), supervisor(service)]
    owner.kill()
    assert left(processes) == []


def test_kill_9_of_the_process_group_leaves_no_process(
    flow: tuple[psutil.Popen, Service],
) -> None:
    owner, service = flow
    processes = [*members(service), supervisor(service)]
    os.killpg(owner.pid, signal.SIGKILL)
    assert left(processes) == []


def test_a_service_does_not_hold_its_owners_stdout_open(flow: tuple[psutil.Popen, Service]) -> None:
    owner, service = flow
    members(service)
    supervisor(service).suspend()
    owner.kill()
    assert owner.stdout.read() == b""
    supervisor(service).resume()


def test_a_dead_service_is_restarted_on_the_same_address(
    folder: Path,
) -> None:
    with family(folder) as service:
        old = members(service)
        old[0].kill()
        new = members(service, but=old)
        assert left(old) == []
        assert len(new) == 3


def test_a_service_that_keeps_dying_fails_with_its_log(folder: Path) -> None:
    text = (
        "print('ValueError: no such model: smollm3'); "
        "print(*range(40), sep='\\n'); raise SystemExit(3)"
    )
    (folder / "program.log").write_text("ValueError: what went wrong last week\n")
    with program(folder, text) as service, pytest.raises(ServiceLost) as lost:
        service.wait(lambda: False, LIMIT)
    assert "The program service died (starts: 2, last exit code: 3)." in str(lost.value)
    assert str(folder / "program.log") in str(lost.value)
    assert "ValueError: no such model: smollm3" in str(lost.value)
    assert str(lost.value).endswith("39\n  --- ended with exit code 3")
    assert "last week" not in str(lost.value)


@pytest.mark.parametrize(
    "prefix",
    [
        "(EngineCore pid=4711) ERROR 11-27 14:02:11 [core.py:1017] ",
        "(EngineCore_DP0 pid=4711) ",
        "ERROR 11-27 14:02:11 [core.py:1017] ",
        "[rank1]: ",
    ],
)
def test_the_quoted_cause_has_no_process_prefix(folder: Path, prefix: str) -> None:
    text = (
        f"import os; prefix = {prefix!r}.replace('4711', str(os.getpid())); "
        "print(prefix + 'ValueError: head_dim=16'); "
        "print(*range(40), sep='\\n'); raise SystemExit(3)"
    )
    with program(folder, text) as service, pytest.raises(ServiceLost) as lost:
        service.wait(lambda: False)
    assert str(lost.value).splitlines()[1:3] == ["  ValueError: head_dim=16", "  ..."]


def test_a_service_that_is_not_ready_in_time_is_an_error(folder: Path) -> None:
    text = "import signal; print('loading', flush=True); signal.pause()"
    with program(folder, text) as service:
        service.wait(lambda: "loading" in (folder / "program.log").read_text(), LIMIT)
        with pytest.raises(ServiceLost, match=r"not ready after 0.2 s. From (.|\n)*loading"):
            service.wait(lambda: False, 0.2)


def test_waiting_for_an_ended_service_is_an_error_at_once(folder: Path) -> None:
    with family(folder) as service:
        pass
    with pytest.raises(ServiceLost, match=r"family.sock .*never started"):
        service.wait(lambda: False)


def test_only_processes_of_dead_runs_are_ended(
    folder: Path, flow: tuple[psutil.Popen, Service]
) -> None:
    owner, service = flow
    orphans = members(service)
    with family(folder, "b") as other:
        others = [*members(other), supervisor(other)]
        assert end_orphans("run-a") == []
        supervisor(service).kill()
        owner.kill()
        owner.wait(LIMIT)
        assert set(end_orphans("run-a")) >= {process.pid for process in orphans[1:]}
        assert left(orphans) == []
        assert not service.scratch.exists()
        assert end_orphans("run-b") == []
        assert all(process.is_running() for process in others)


def test_an_orphan_with_its_own_tmpdir_is_ended(tmp_path: Path) -> None:
    owner = json.dumps({**Owner.current().to_json(), "ticks": 1})  # an earlier process
    marks = {RUN: "run-c", OWNER: owner, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(["sleep", "600"], env=marks, preexec_fn=die_with_parent) as orphan:
        assert end_orphans("run-c") == [orphan.pid]
    assert tmp_path.is_dir()


def test_a_service_first_ends_processes_of_a_dead_owner(
    folder: Path, flow: tuple[psutil.Popen, Service]
) -> None:
    owner, service = flow
    orphans = members(service)
    supervisor(service).kill()
    owner.kill()
    owner.wait(LIMIT)
    with family(folder) as again:
        assert left(orphans) == []
        assert len(members(again)) == 3


def test_the_next_service_removes_folders_of_killed_trees(
    folder: Path, flow: tuple[psutil.Popen, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, service = flow
    members(service)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    left_behind = (folder / "a").rename(folder / "agentfly-x1_8cd2q")
    (folder / "agentfly-notes").mkdir()
    new_address("vllm")
    assert left_behind.exists()
    supervisor(Service("family", str(left_behind / "family.sock"))).kill()
    owner.kill()
    owner.wait(LIMIT)
    end_orphans("run-a")
    address = new_address("vllm")
    assert {path.name for path in folder.glob("agentfly-*")} >= {
        "agentfly-notes",
        address.parent.name,
    }
    assert not left_behind.exists()
    assert address.parent.stat().st_mode & 0o077 == 0


def test_a_living_run_is_kept_after_the_clock_is_set(
    folder: Path, flow: tuple[psutil.Popen, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, service = flow
    processes = [*members(service), supervisor(service)]
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    (folder / "a").rename(folder / "agentfly-x1_8cd2q")
    set_clock(monkeypatch, 3600)
    new_address("vllm")
    assert (folder / "agentfly-x1_8cd2q" / "family.sock.owner").exists()
    assert end_orphans("run-a") == []
    assert all(process.is_running() for process in processes)
    (folder / "agentfly-x1_8cd2q").rename(folder / "a")


def test_a_service_starts_despite_odd_folders_and_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    damaged = {
        "cut": b'{"host": "no',
        "empty": b"",
        "zeroed": b"\0" * 90,
        "bytes": b"\xff\xfe",
        "list": b"[]",
    }
    for name, written in damaged.items():
        (folder / f"agentfly-{name}").mkdir()
        (folder / f"agentfly-{name}" / "vllm.sock.owner").write_bytes(written)
    (folder / "agentfly-folder" / "vllm.sock.owner").mkdir(parents=True)
    (folder / "agentfly-closed").mkdir(mode=0)
    (folder / "agentfly-file").touch()
    for _ in range(2):
        assert new_address("vllm").parent.parent == folder
    assert (
        len(
            [name for name in damaged if (folder / f"agentfly-{name}" / "vllm.sock.owner").exists()]
        )
        == 5
    )


def test_a_process_with_an_invalid_owner_is_left_alone(folder: Path) -> None:
    marks = {"AGENTFLY_RUN": "run-c", "AGENTFLY_OWNER": "\udcff{", "TMPDIR": str(folder)}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, **marks}) as stranger:
        assert end_orphans("run-c") == []
        assert stranger.poll() is None


def test_a_killed_supervisor_is_an_error(folder: Path) -> None:
    with family(folder) as service:
        processes = members(service)
        supervisor(service).kill()
        assert left(processes[:1]) == []
        with pytest.raises(ServiceLost, match="lost its supervisor"):
            service.wait(lambda: False, LIMIT)
    assert left(processes) == []


def test_a_too_long_socket_path_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"at most 100.*set TMPDIR"), family(folder, "x" * 100):
        pass


def test_a_socket_folder_open_to_others_is_refused(folder: Path) -> None:
    (folder / "a").mkdir(mode=0o755)
    with pytest.raises(ValueError, match="0700"), family(folder):
        pass
