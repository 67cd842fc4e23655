"""Run child services (vLLM, learner workers) under a supervisor process that restarts them."""

import asyncio
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
from asyncio.subprocess import Process
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
"""The most seconds that a running service may take to become ready or to exit."""
TAIL = 12
PREFIX = re.compile(
    r"^((\[rank\d+\]:|\([^()]*pid=\d+\)|(ERROR|CRITICAL) [\d-]+ [\d:.,]+ \[[^\]]*\]) ?)+"
)
"""Matches the prefixes that processes of vLLM and ranks of torch write before lines of a
traceback.
"""
CAUSE = re.compile(r"^[\w.]*(Error|Exception)(: |$)")
logger = logging.getLogger(__name__)


class ServiceLost(RuntimeError):
    """A service died or was not ready in time. The message contains the end of the service's
    log.
    """


@dataclass(frozen=True, slots=True)
class Service:
    """The address of a running service: `Service("vllm", "/tmp/agentfly-x1/vllm.sock")`."""

    kind: str
    address: str

    @property
    def scratch(self) -> Path:
        """The private TMPDIR of the service. It is removed when the service ends."""
        return Path(f"{self.address}.d")

    def claim(self, log: Path, run: str) -> dict[str, str]:
        """Create the service's folders and files, and return environment variables that mark its
        processes.
        """
        if len(self.address) > LONGEST_ADDRESS:
            raise ValueError(
                f"The socket path {self.address} has {len(self.address)} characters, expected at "
                f"most {LONGEST_ADDRESS}: set TMPDIR to a shorter folder."
            )
        folder = Path(self.address).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # the services accept any request on their sockets; the folder's mode is their only guard
        if folder.stat().st_mode & 0o077:
            raise ValueError(
                f"Other users can enter {folder} with its sockets, expected mode 0700."
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
        """Wait until `ready()` is true. Raises ServiceLost if the service dies or is not ready
        within `seconds`.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if fault := self.fault():
                raise self.lost(fault)
            if time.monotonic() > deadline:
                raise self.lost(f"was not ready after {seconds:g} s")
            time.sleep(0.05)

    def lost(self, what: str) -> ServiceLost:
        """Make an error with the lines of the service's log that name causes, and the log's end."""
        state = ChildState.read(self.address)
        if state is None:
            return ServiceLost(f"The {self.kind} service at {self.address} {what}.")
        text = Path(state.log).read_text(errors="replace")
        # the log may contain earlier runs
        lines = text[max(0, text.rfind(FIRST_START)) :].splitlines()
        printed = dict.fromkeys(PREFIX.sub("", line) for line in lines[:-TAIL])
        # the cause is far above the end, because vLLM's engine prints it before its API server
        # fails
        causes = [line for line in printed if CAUSE.search(line)][-TAIL:]
        first = f"The {self.kind} service {what}. From {state.log}:"
        return ServiceLost("\n  ".join([first, *causes, "...", *lines[-TAIL:]]))

    def fault(self) -> str | None:
        """Describe why the service is lost ("died 4 times, ..."), or return None if it is running
        or can be restarted.
        """
        state = ChildState.read(self.address)
        if state is None:
            return "was ended, or never started"
        if state.exit is not None:
            return f"died {state.starts} times, the last time with exit code {state.exit}"
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(state.keeper).status() != psutil.STATUS_ZOMBIE:
                return None
        return "lost its supervisor"


def owned_environment(inherited: Iterable[str], env: Mapping[str, str]) -> dict[str, str]:
    """Make the environment variables of a child process.

    They are `env`, this process's variables that are named in INHERITED and `inherited`, and a mark
    of this process. If this process dies, a later run finds the child by this mark and kills it.
    """
    names = (*INHERITED, *inherited)
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {**kept, **env, OWNER: json.dumps(Owner.current().to_json())}


async def owned_process(command: Sequence[str], env: Mapping[str, str], **streams: Any) -> Process:
    """Start a process with the environment `env`, made by `owned_environment`.

    The process has its own session, so that its descendants can be killed with it. `streams` are
    arguments of `asyncio.create_subprocess_exec`. Raises OSError.
    """
    start = asyncio.create_subprocess_exec
    return await start(*command, env=env, start_new_session=True, **streams)


def new_address(kind: str) -> Path:
    """Return a socket path in a new private folder: `/tmp/agentfly-x1_8cd2q/vllm.sock`."""
    return private_folder() / f"{kind}.sock"


def private_folder() -> Path:
    """Create a private folder, `/tmp/agentfly-x1_8cd2q`, and remove folders of dead processes."""
    # pathlib's glob fails if a folder is removed meanwhile
    for mark in map(Path, glob.iglob(f"{tempfile.gettempdir()}/agentfly-*/*.owner")):
        # the folder may be gone, another user's or damaged
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
    """Run a service during the block. Yields the service before it is ready.

    The service gets this process's environment, without the secrets of the Prefect and MLflow
    servers, plus `env`. `run` marks the processes of the service; orphans of this run are killed
    first. A child that dies is restarted up to `restarts` times. At the end of the block the child
    has GRACE seconds to exit. Raises ValueError for an invalid socket path.
    """
    if ended := end_orphans(run):
        logger.warning("Ended the processes %s of a dead owner.", ended)
    service = Service(kind, str(socket))
    marks = service.claim(log, run)
    # the kernel closes the pipe when this process ends, even after SIGKILL
    reading, writing = os.pipe()
    with log.open("ab") as output:
        options = f"--owner {os.getpid()} --lifeline {reading} --restarts {restarts}".split()
        options += ["--address", service.address, "--log", str(log), "--", *command]
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "agentfly_core.system.supervisor", *options],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[reading],
            start_new_session=True,
            env={**for_children(), **env, **marks},
        )
    # open only in the supervisor
    os.close(reading)
    try:
        yield service
    finally:
        os.close(writing)
        # if the supervisor itself was killed, children and files are left behind
        if supervisor.wait(GRACE + LONGEST) != 0:
            end_users(service.scratch)
            clean(service.address)


def end_orphans(run: str) -> list[int]:
    """Kill the service processes of this run that dead processes had started; return their process
    ids.
    """
    ended = orphans_killed(run)
    for scratch in {marks["TMPDIR"] for marks in ended.values()}:
        clean(scratch.removesuffix(".d"))
    return list(ended)


def orphans_killed(run: str | None) -> dict[int, Mapping[str, str]]:
    """Kill processes of dead owners, and return their variables as `killed` does.

    With a `run`, only processes of this run are killed; with None, only processes without a run.
    """
    return killed(lambda marks: marks.get(RUN) == run and OWNER in marks and gone(marks[OWNER]))


def end_users(scratch: Path) -> None:
    """Kill the processes that have this TMPDIR, by SIGKILL."""
    killed(lambda marks: marks.get("TMPDIR") == str(scratch))


def killed(chosen: Callable[[Mapping[str, str]], bool]) -> dict[int, Mapping[str, str]]:
    """Kill the processes that `chosen` selects by their environment variables, by SIGKILL. Return
    their variables by process id.
    """
    ended: dict[int, Mapping[str, str]] = {}
    # repeated, because a killed process may have started another one
    while running := {
        process: marks
        for process in psutil.process_iter(["environ"])
        # None means that the process is another user's
        if chosen(marks := process.info.get("environ") or {})
    }:
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        ended |= {process.pid: marks for process, marks in running.items()}
        # psutil would reap asyncio's children
        time.sleep(0.005)
    return ended


def gone(written: str) -> bool:
    """Whether the owner `written` in an environment variable is dead. False for invalid text."""
    try:
        return not Owner.of(strict_json.parse(written)).alive
    except ValueError:
        return False


SANDBOX = "AGENTFLY_SANDBOX"
"""Environment variable that selects a sandbox backend."""
