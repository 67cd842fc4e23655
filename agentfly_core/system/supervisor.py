"""The program that restarts a child service, and ends the service when its owner dies.

    python -m agentfly_core.system.supervisor OWNER LIFELINE RESTARTS ADDRESS LOG COMMAND...

The supervisor is a subreaper, so it adopts all descendants of the service. It ends when the owner
closes the pipe LIFELINE (a file descriptor), when the owner dies, or on SIGTERM. In the first two
cases, the service has 5 seconds (GRACE) to exit. Then all remaining descendants are killed. After
SIGTERM, all are killed at once. A service that dies is restarted up to RESTARTS times; after that,
its exit code is written to the file `ADDRESS.state`. The owner must redirect the supervisor's
stdout and stderr to LOG.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GRACE = 5.0
FIRST_START = "--- start 1:"
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class ChildState:
    """The state of a service: `ChildState("vllm.log", 4713, starts=2)`.

    - `log`: the path of the service's log
    - `keeper`: the process id of the supervisor
    - `starts`: how often the service was started
    - `exit`: the exit code after the last death of the service. None if the service is running or
      will be restarted.
    """

    log: str
    keeper: int
    starts: int = 0
    exit: int | None = None

    @classmethod
    def read(cls, address: str) -> ChildState | None:
        """Read the state of the service at an address. Returns None if no state was written."""
        with suppress(FileNotFoundError):
            return cls(**json.loads(Path(f"{address}.state").read_text()))
        return None

    def write(self, address: str) -> None:
        """Write this state to the file `{address}.state`. The write is atomic.

        `address` is the address of the service.
        """
        part = Path(f"{address}.part")
        part.write_text(json.dumps(asdict(self)))
        # a rename, because the owner reads the file again and again, and must not read half of it
        part.rename(f"{address}.state")


def main() -> None:
    """Run the command of the service, and restart the service up to RESTARTS times if it dies.

    The service and all its descendants are killed when the owner (the process OWNER) dies, when the
    owner closes the pipe LIFELINE, or when the supervisor gets SIGTERM.
    """
    owner, lifeline, restarts = map(int, sys.argv[1:4])
    address, log, *command = sys.argv[4:]

    # an exception, so that `finally` kills the service
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    become_subreaper()
    try:
        with suppress(ProcessLookupError):
            ends = [lifeline, os.pidfd_open(owner)]
            # if the owner died before pidfd_open, its process id may now belong to another process
            if os.getppid() == owner:
                _keep_alive(command, address, log, restarts, ends)
    finally:
        # a second SIGTERM must not interrupt the clean-up
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        kill_descendants()
        clean(address)


def _keep_alive(
    command: Sequence[str], address: str, log: str, restarts: int, ends: Sequence[int]
) -> None:
    starts, code = 0, None
    while starts <= restarts:
        starts += 1
        # binding fails while the socket file of the dead child exists
        Path(address).unlink(missing_ok=True)
        ChildState(log, os.getpid(), starts).write(address)
        print(f"--- start {starts}: {' '.join(command)}", flush=True)
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        dead = os.pidfd_open(child.pid)
        try:
            ready = select.select([*ends, dead], [], [])[0]
        finally:
            os.close(dead)
        # the owner has ended, or has closed its lifeline
        if ready != [dead]:
            return end_politely(child)
        code = child.wait()
        print(f"--- ended with exit code {code}", flush=True)
        kill_descendants()
    ChildState(log, os.getpid(), starts, code).write(address)
    # wait, because the owner reads from the state file why the child has ended
    select.select(ends, [], [])


def become_subreaper() -> None:
    """Make this process the new parent of descendants that lose their parent."""
    LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_politely(child: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to a child, and wait at most 5 seconds for the end of the child.

    In this time, the child can free shared memory. If the child is still running after the wait,
    the caller must kill it.
    """
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(GRACE)


def kill_descendants() -> None:
    """Kill all descendants of this process by SIGKILL, and wait for their end."""
    # repeated, because a process may fork after it was listed and before it is killed
    while children := psutil.Process().children(recursive=True):
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.005)


def clean(address: str) -> None:
    """Remove the socket, the state files and the folder for temporary files of a service.

    The folder of the socket is also removed if it is empty.
    """
    shutil.rmtree(f"{address}.d", ignore_errors=True)
    for path in (address, f"{address}.state", f"{address}.owner"):
        Path(path).unlink(missing_ok=True)
    with suppress(OSError):
        Path(address).parent.rmdir()


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent dies."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


if __name__ == "__main__":
    main()
