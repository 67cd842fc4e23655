"""Run services such as vLLM and learner workers as child processes. A supervisor process restarts a
service that dies.
"""

import glob
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentfly_core.system.files import write_json
from agentfly_core.system.formats import strict_json
from agentfly_core.system.module_search import for_children
from agentfly_core.system.process import Owner
from agentfly_core.system.supervisor import FIRST_START, GRACE, ChildState, clean

INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
RUN = "AGENTFLY_RUN"
OWNER = "AGENTFLY_OWNER"
LONGEST_ADDRESS = 100
LONGEST = 1800.0
"""The maximum time in seconds until a service is ready. When a service is ended, its supervisor
process has at most LONGEST + GRACE seconds to exit.
"""
TAIL = 12
PREFIX = re.compile(
    r"^((\[rank\d+\]:|\([^()]*pid=\d+\)|(ERROR|CRITICAL) [\d-]+ [\d:.,]+ \[[^\]]*\]) ?)+"
)
"""Matches the prefixes that processes of vLLM and ranks of torch add to each line of a
traceback.
"""
CAUSE = re.compile(r"^[\w.]*(Error|Exception)(: |$)")
logger = logging.getLogger(__name__)


class ServiceLost(RuntimeError):
    """A service died, stopped answering, was not ready in time, or lost its state.

    The work of the service must be repeated. If the service died, the message contains the last
    lines of its log.
    """


@dataclass(frozen=True, slots=True)
class Service:
    """A service and the path of its socket: `Service("vllm", "/tmp/agentfly-x1/vllm.sock")`."""

    kind: str
    address: str

    @property
    def scratch(self) -> Path:
        """The private folder for temporary files (TMPDIR) of the service.

        It is removed when the service ends.
        """
        return Path(f"{self.address}.d")

    def claim(self, log: Path, run: str) -> dict[str, str]:
        """Create the folders and files of the service.

        Returns environment variables for the processes of the service. If this process dies, a
        later process of the same run finds the service's processes by these variables and kills
        them. `run` is the name or the uid of the run. Raises ValueError if the path of the socket
        is too long, or if other users can enter the socket's folder.
        """
        if len(self.address) > LONGEST_ADDRESS:
            raise ValueError(
                f"The socket path {self.address} has {len(self.address)} characters, expected at "
                f"most {LONGEST_ADDRESS}: set TMPDIR to a shorter folder."
            )
        folder = Path(self.address).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # services accept all requests on their sockets, so only the folder's mode protects them
        if folder.stat().st_mode & 0o077:
            raise ValueError(
                f"Other users can enter {folder}, which contains sockets; set its mode to 0700."
            )
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        ChildState(str(log), os.getpid()).write(self.address)
        owner = Owner.current().to_json()
        write_json(Path(f"{self.address}.owner"), owner)
        marks = {RUN: run, OWNER: json.dumps(owner), "TMPDIR": str(self.scratch)}
        # keeps vLLM's setproctitle from overwriting /proc/PID/environ
        return marks | {"SPT_NOENV": "1"}

    def wait(self, ready: Callable[[], bool], seconds: float = LONGEST) -> None:
        """Wait until `ready()` returns True.

        Raises ServiceLost if the service is lost (see `fault`), or if it is not ready within
        `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if fault := self.fault():
                raise self.lost(fault)
            if time.monotonic() > deadline:
                raise self.lost(f"was not ready after {seconds:g} s")
            time.sleep(0.05)

    def lost(self, what: str) -> ServiceLost:
        """Return a ServiceLost error for this service.

        The message contains the problem `what`, such as "died". It also contains the log lines that
        name the cause of the error, and the last lines of the log. For a service that was ended or
        never started, the message contains no log lines.
        """
        state = ChildState.read(self.address)
        if state is None:
            return ServiceLost(f"The {self.kind} service at {self.address} {what}.")
        text = Path(state.log).read_text(errors="replace")
        # the log may also contain lines of earlier runs, before the last first start
        lines = text[max(0, text.rfind(FIRST_START)) :].splitlines()
        printed = dict.fromkeys(PREFIX.sub("", line) for line in lines[:-TAIL])
        # vLLM's engine prints the cause long before the API server fails, so it is not at the end
        causes = [line for line in printed if CAUSE.search(line)][-TAIL:]
        first = f"The {self.kind} service {what}. From {state.log}:"
        return ServiceLost("\n  ".join([first, *causes, "...", *lines[-TAIL:]]))

    def fault(self) -> str | None:
        """Return why the service is lost, such as "died (starts: 4, ...)".

        Returns None if the service is running, or if its supervisor can still restart it.
        """
        state = ChildState.read(self.address)
        if state is None:
            return "was ended, or never started"
        if state.exit is not None:
            return f"died (starts: {state.starts}, last exit code: {state.exit})"
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(state.keeper).status() != psutil.STATUS_ZOMBIE:
                return None
        return "lost its supervisor"


def owned_environment(inherited: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a child process.

    The result has the variables in `env`. From the environment of this process, it has the
    variables named in INHERITED (such as PATH) and in `inherited`. A further variable identifies
    this process. If this process dies, a later run finds the child by this variable and kills it.
    """
    names = (*INHERITED, *inherited)
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, **env, OWNER: json.dumps(Owner.current().to_json())}


def new_address(kind: str) -> Path:
    """Create a private folder, and return the path for a socket in it:
    `/tmp/agentfly-x1_8cd2q/vllm.sock`.
    """
    return private_folder() / f"{kind}.sock"


def private_folder() -> Path:
    """Create a private folder, such as `/tmp/agentfly-x1_8cd2q`, and return its path.

    Private folders that dead processes have left are removed.
    """
    # pathlib's glob fails if a folder is removed at the same time
    for mark in map(Path, glob.iglob(f"{tempfile.gettempdir()}/agentfly-*/*.owner")):
        # the folder may be removed, belong to another user, or have a damaged file
        with suppress(OSError, UnicodeDecodeError):
            if mark.lstat().st_uid == os.getuid() and gone(mark.read_text("utf-8")):
                shutil.rmtree(mark.parent, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix="agentfly-"))


@contextmanager
def supervised(
    kind: str,
    command: Sequence[str],
    env: Mapping[str, str],
    socket: Path,
    log: Path,
    run: str,
    restarts: int = 3,
) -> Iterator[Service]:
    """Run a service during the `with` block. Yields the service before it is ready.

    The service has the environment variables of this process and the variables in `env`. Secrets of
    the Prefect and MLflow servers are left out. `run` is the name of the run to which the service
    belongs. If an earlier process of this run died and left service processes, these service
    processes are killed first.

    If the service dies, it is restarted, at most `restarts` times. At the end of the `with` block,
    the service has 5 seconds to exit. Raises ValueError if the path `socket` is too long, or if
    other users can enter its folder.
    """
    if ended := end_orphans(run):
        logger.warning(
            "An earlier process of this run had left processes running. They were ended (process "
            "ids: %s).",
            ended,
        )
    service = Service(kind, str(socket))
    marks = service.claim(log, run)
    # the kernel closes the pipe when this process ends, even after SIGKILL
    reading, writing = os.pipe()
    with log.open("ab") as output:
        numbers = map(str, (os.getpid(), reading, restarts))
        options = [*numbers, service.address, str(log), *command]
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "agentfly_core.system.supervisor", *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[reading],
            start_new_session=True,
            env={**for_children(), **env, **marks},
        )
    # the reading end must be open only in the supervisor
    os.close(reading)
    try:
        yield service
    finally:
        os.close(writing)
        # if the supervisor itself was killed, its children and files are left
        if supervisor.wait(GRACE + LONGEST) != 0:
            end_users(service.scratch)
            clean(service.address)


def end_orphans(run: str) -> list[int]:
    """Kill the orphaned service processes of a run, and return their process ids.

    A service process is orphaned if the process that started it is dead.
    """
    ended = orphans_killed(run)
    folders = {marks.get("TMPDIR", "") for marks in ended.values()}
    # a program of an author may have its own TMPDIR
    for scratch in (folder for folder in folders if folder.endswith(".sock.d")):
        clean(scratch.removesuffix(".d"))
    return list(ended)


def orphans_killed(run: str | None) -> dict[int, Mapping[str, str]]:
    """Kill orphaned service processes (the process that started them is dead).

    If `run` is a name, only processes of this run are killed. If it is None, only processes that do
    not belong to a run are killed. Returns the environment variables of each killed process, by
    process id.
    """
    return killed(lambda marks: marks.get(RUN) == run and OWNER in marks and gone(marks[OWNER]))


def end_users(scratch: Path) -> None:
    """Kill all processes whose environment variable TMPDIR is `scratch`, with SIGKILL."""
    killed(lambda marks: marks.get("TMPDIR") == str(scratch))


def killed(chosen: Callable[[Mapping[str, str]], bool]) -> dict[int, Mapping[str, str]]:
    """Kill processes by SIGKILL, and return their environment variables by process id.

    A process is killed if `chosen` returns True for its environment variables.
    """
    ended: dict[int, Mapping[str, str]] = {}
    # repeated, because a process may start another process before it is killed
    while running := {
        process: marks
        for process in psutil.process_iter(["environ"])
        # None means that the process belongs to another user
        if chosen(marks := process.info.get("environ") or {})
    }:
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        ended |= {process.pid: marks for process, marks in running.items()}
        # not psutil's wait, which would reap children of asyncio
        time.sleep(0.005)
    return ended


def gone(written: str) -> bool:
    """Whether the process that `written` identifies is dead.

    `written` is the value of the environment variable AGENTFLY_OWNER. For an invalid value, the
    result is False.
    """
    try:
        return not Owner.of(strict_json.parse(written)).alive
    except ValueError:
        return False


SANDBOX = "AGENTFLY_SANDBOX"
"""Environment variable that selects a sandbox backend."""
