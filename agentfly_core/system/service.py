"""Child services (vLLM, the learner's workers): starting them under a supervisor, waiting for them,
ending leftovers.

A service is started once and kept warm, and may die at any time: its supervisor starts it again on
the same address, and its user restores its state from disk.
"""

from __future__ import annotations

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from agentfly_core.system.files import write_json
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import warn_once
from agentfly_core.system.module_search import for_children
from agentfly_core.system.process import Owner
from agentfly_core.system.supervisor import FIRST_START, GRACE, ChildState, clean

RUN = "AGENTFLY_RUN"
OWNER = "AGENTFLY_OWNER"
LONGEST_ADDRESS = 100
LONGEST = 1800.0
"""Seconds that a service may take on a busy machine, as long as it lives."""
TAIL = 12
PREFIX = re.compile(
    r"^((\[rank\d+\]:|\([^()]*pid=\d+\)|(ERROR|CRITICAL) [\d-]+ [\d:.,]+ \[[^\]]*\]) ?)+"
)
"""What vLLM's processes and torch's ranks print before each line of a traceback."""
CAUSE = re.compile(r"^[\w.]*(Error|Exception)(: |$)")
logger = logging.getLogger(__name__)


class ServiceLost(RuntimeError):
    """A service is gone for good, or was not ready in time; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Service:
    """The address of a running service: `Service("vllm", "/tmp/agentfly-x1/vllm.sock")`; crosses
    stages as JSON.
    """

    kind: str
    address: str

    @property
    def scratch(self) -> Path:
        """A private folder that lives as long as the service, whose TMPDIR it is."""
        return Path(f"{self.address}.d")

    def claim(self, log: Path, run: str) -> dict[str, str]:
        """Make its folders and files, and return the environment that marks its processes."""
        if len(self.address) > LONGEST_ADDRESS:
            raise ValueError(
                f"Got the socket path {self.address} of {len(self.address)} characters, "
                f"expected at most {LONGEST_ADDRESS}: the system refuses longer ones. Set TMPDIR "
                "to a shorter folder."
            )
        folder = Path(self.address).parent
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if folder.stat().st_mode & 0o077:
            raise ValueError(
                f"Others can enter {folder}, expected a folder of mode 0700: sockets in it are not "
                "guarded."
            )
        self.scratch.mkdir(mode=0o700, exist_ok=True)
        log.parent.mkdir(parents=True, exist_ok=True)
        ChildState(str(log), os.getpid()).write(self.address)
        owner = Owner.current().to_json()
        write_json(Path(f"{self.address}.owner"), owner)
        marks = {RUN: run, OWNER: json.dumps(owner), "TMPDIR": str(self.scratch)}
        # it keeps setproctitle, which vLLM calls, from overwriting what /proc/PID/environ shows
        return marks | {"SPT_NOENV": "1"}

    def wait(self, ready: Callable[[], bool], seconds: float = LONGEST) -> None:
        """Wait until `ready()`; raises ServiceLost when the service is gone for good or the time is
        over, which only a service that hangs reaches.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if fault := self.fault():
                raise self.lost(fault)
            if time.monotonic() > deadline:
                raise self.lost(f"was not ready after {seconds:g} s")
            time.sleep(0.05)

    def lost(self, what: str) -> ServiceLost:
        """The error that says what happened to this service, with the end of its log."""
        state = ChildState.read(self.address)
        if state is None:
            return ServiceLost(f"The {self.kind} service at {self.address} {what}.")
        text = Path(state.log).read_text(errors="replace")
        lines = text[text.rfind(FIRST_START) :].splitlines()
        printed = dict.fromkeys(PREFIX.sub("", line) for line in lines[:-TAIL])
        causes = [line for line in printed if CAUSE.search(line)][-TAIL:]
        first = f"The {self.kind} service {what}. From {state.log}:"
        return ServiceLost("\n  ".join([first, *causes, "...", *lines[-TAIL:]]))

    def fault(self) -> str | None:
        """Why it will not come back by itself, a phrase; None while it may."""
        state = ChildState.read(self.address)
        if state is None:
            return "was ended, or never started"
        if state.exit is not None:
            return f"died {state.starts} times, the last time with exit code {state.exit}"
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(state.keeper).status() != psutil.STATUS_ZOMBIE:
                return None
        return "lost its supervisor"


def new_address(kind: str) -> Path:
    """A socket path in a new private folder: `/tmp/agentfly-x1_8cd2q/vllm.sock`."""
    return private_folder() / f"{kind}.sock"


def private_folder() -> Path:
    """A new private folder, `/tmp/agentfly-x1_8cd2q`; folders of dead owners are removed."""
    # pathlib's own glob fails when a folder is removed meanwhile.
    for mark in map(Path, glob.iglob(f"{tempfile.gettempdir()}/agentfly-*/*.owner")):
        try:
            is_mine = mark.lstat().st_uid == os.getuid()
            if is_mine and not Owner.of(strict_json.parse(mark.read_bytes().decode())).alive:
                shutil.rmtree(mark.parent, ignore_errors=True)
        except OSError:  # removed meanwhile, or in another user's folder
            continue
        except ValueError as fault:
            warn_once(
                logger,
                f"{mark} is damaged ({fault}): its folder stays. Remove it once no run of yours is "
                "at work.",
            )
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
    grace: float = GRACE,
) -> Iterator[Service]:
    """Start a service for the block's duration, and yield its address without waiting for it.

    `env` is added to this process's environment, from which the secrets of the Prefect and MLflow
    servers are taken; `log` takes stdout and stderr; `run` marks all its processes, and those that
    a dead owner of this run left are ended first. A child that dies is started again up to
    `restarts` times; at the end it has `grace` seconds for its own. Raises ValueError for a socket
    path that is too long or whose folder others can enter.
    """
    if ended := end_orphans(run):
        logger.warning("Ended processes %s that a dead owner left behind.", ended)
    service = Service(kind, str(socket))
    marks = service.claim(log, run)
    # However this process ends, its end of the pipe is closed then, which the supervisor sees.
    reading, writing = os.pipe()
    with log.open("ab") as output:
        options = f"--owner {os.getpid()} --lifeline {reading} --restarts {restarts}".split()
        options += ["--grace", str(grace)]
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
    os.close(reading)
    try:
        yield service
    finally:
        os.close(writing)
        if supervisor.wait(grace + LONGEST) != 0:
            end_users(service.scratch)
            clean(service.address)


def end_orphans(run: str) -> list[int]:
    """End every service process of this run whose owner is dead; returns their process ids."""
    ended = orphans_killed(run)
    for scratch in {marks["TMPDIR"] for marks in ended.values()}:
        clean(scratch.removesuffix(".d"))
    return list(ended)


def orphans_killed(run: str | None) -> dict[int, Mapping[str, str]]:
    """`killed` for the processes of a run, or of none, whose owner is dead."""
    return killed(lambda marks: marks.get(RUN) == run and OWNER in marks and gone(marks[OWNER]))


def end_users(scratch: Path) -> None:
    """SIGKILL the processes whose TMPDIR is this folder."""
    killed(lambda marks: marks.get("TMPDIR") == str(scratch))


def killed(chosen: Callable[[Mapping[str, str]], bool]) -> dict[int, Mapping[str, str]]:
    """SIGKILL the processes whose environment variables are chosen until none is left; returns
    these variables by process id.
    """
    ended: dict[int, Mapping[str, str]] = {}
    # more than once, since what is killed may have started another process meanwhile
    while running := {
        process: marks
        for process in psutil.process_iter(["environ"])
        if chosen(marks := process.info.get("environ") or {})  # None: another user's
    }:
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        ended |= {process.pid: marks for process, marks in running.items()}
        # psutil would wait by reaping, and asyncio never hear of the end of its own children
        time.sleep(0.005)
    return ended


def gone(written: str) -> bool:
    """Whether the owner named in a process's environment is dead; invalid text names none."""
    try:
        return not Owner.of(strict_json.parse(written)).alive
    except ValueError:
        return False


SANDBOX = "AGENTFLY_SANDBOX"
"""The environment variable that names the one sandbox back end to be tried."""
