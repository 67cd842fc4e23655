"""Waits for other processes and threads that no busy machine exceeds."""

import subprocess
import time
from collections.abc import Callable

import psutil

LIMIT = 3600.0
"""Seconds after which a wait fails: only a fault takes so long, on a busy machine too."""


def until(
    condition: Callable[[], object], process: subprocess.Popen[str] | int | None = None
) -> None:
    """Wait for a condition; fails the test once the process that should fulfil it has ended.

    The condition is checked ever less often, up to twice a second, since checks need the processor,
    too.
    """
    deadline, pause = time.monotonic() + LIMIT, 0.05
    while not condition():
        if end := _end(process):
            assert condition(), f"{end} before {condition}"
            return
        assert time.monotonic() < deadline, f"waited {LIMIT:g} s for {condition}"
        time.sleep(pause)
        pause = min(1.2 * pause, 0.5)


def _end(process: subprocess.Popen[str] | int | None) -> str:
    """The exit code and output of an ended process; empty while it runs."""
    if isinstance(process, subprocess.Popen):
        if process.poll() is None:
            return ""
        printed = process.communicate()[0] if process.stdout else ""
        return f"the process ended with {process.returncode}, printing {printed!r},"
    if process is None or _runs(process):
        return ""
    return f"the process {process} ended"


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
