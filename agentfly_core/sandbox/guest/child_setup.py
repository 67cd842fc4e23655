"""Set up the child process that runs model-written code: limits, privileges and streams."""

import atexit
import os
import resource
import signal
import socket
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from agentfly_core.sandbox.guest import kernel, landlock, programs, seccomp, view
from agentfly_core.sandbox.guest.protocol import Limits

OPEN_FILES = 256
READY = b"ready"


@dataclass(frozen=True, slots=True)
class Work:
    """The folder and the limits of an execution.

    - `grouped`: whether a control group limits the memory
    - `locked`: whether the process is isolated. False only for the backend `unsafe`.
    - `kept`: whether the process runs several pieces of code
    """

    folder: Path
    limits: Limits
    grouped: bool
    locked: bool
    kept: bool


def run(work: Work, streams: tuple[int, int, int], line: socket.socket) -> NoReturn:
    """Set up this process, run the code, and exit.

    If the setup fails, the process sends the error over the socket `line` and exits. Otherwise, it
    sends READY and runs the file main.py in `work.folder`. With `work.kept`, it instead runs the
    pieces of code that arrive over `line`.
    """
    code = 1
    try:
        why = _prevented(work, streams, line.fileno())
        line.send(why or READY)
        if not why and work.kept:
            code = programs.each(line)
        elif not why:
            code = programs.only(work.folder / "main.py", line)
    finally:
        # not `sys.exit`, because exit handlers of the server must not run in this process
        os._exit(code)


def _prevented(work: Work, streams: tuple[int, int, int], line: int) -> bytes:
    """Set up this process with the folder, limits and isolation that `work` specifies.

    Return an error text, or b"" on success.
    """
    try:
        # a process that is not dumpable cannot write its own files in /proc
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        os.setsid()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.closerange(3, line)
        os.closerange(line + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        os.chdir(work.folder)
        bound(work)
        if work.locked:
            lock(network=False)
        _become(work.folder / "main.py")
    except Exception as error:  # model-written code has not started
        return f"{type(error).__name__}: {error}".encode()
    return b""


def lock(network: bool) -> None:
    """Permanently give up privileges, most system calls, and the access to most files.

    With `network`, TCP sockets are allowed.
    """
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    landlock.apply([Path(place) for place in view.SCRATCH.values()], network)
    seccomp.apply(network)


def bound(work: Work) -> None:
    """Limit the resources of this process and its children."""
    limits = work.limits
    # if the machine runs out of memory, the kernel kills this process before services of the
    # machine
    Path("/proc/self/oom_score_adj").write_text("1000")
    # the limit does not count memory that the interpreter already uses
    base = int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    for kind, most in (
        (resource.RLIMIT_DATA, base + limits.memory),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_FSIZE, limits.disk),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    if not work.kept:
        # at the first limit the process gets SIGXCPU, which shows the cause; at the second it gets
        # SIGKILL, which code cannot catch
        resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu, limits.cpu + 1))


def _become(main: Path) -> None:
    """Reset modules, arguments, streams, signal handlers and random state for the file `main`."""
    atexit._clear()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in [name for name in sys.modules if name.partition(".")[0] == "agentfly_core"]:
        del sys.modules[name]
    if "numpy.random" in sys.modules:
        # otherwise all forks would start with the same random state
        sys.modules["numpy.random"].seed()
    sys.argv = [str(main)]
    sys.path[:] = [str(main.parent), *filter(os.path.isdir, sys.path)]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode = "w" if number else "r"
        stream = open(number, mode, 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
