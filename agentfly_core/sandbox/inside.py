"""The process in which model-written code runs: it gives up what it could misuse, then becomes `python main.py`."""

from __future__ import annotations

import atexit
import importlib.machinery
import os
import resource
import sys
import threading
import traceback
import types
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from agentfly_core.sandbox import kernel, landlock, seccomp, view
from agentfly_core.sandbox.limits import Limits

OPEN_FILES = 256


@dataclass(frozen=True, slots=True)
class Work:
    """Where and how the code runs.

    `base` is the memory in bytes that a process has before it starts, `grouped` says that a control group bounds the
    memory of all, and `locked` is False only where the user chose to run without a sandbox.
    """

    folder: Path
    limits: Limits
    base: int
    grouped: bool
    locked: bool


def run(work: Work, streams: tuple[int, int, int], fault: int) -> NoReturn:
    """Run main.py of the working directory to its end, and this process with it.

    `fault` is the descriptor to which goes what prevents it; it is closed before the code starts.
    """
    code = 1
    try:
        _settle(work, streams, fault)
        _become(work.folder / "main.py")
        os.close(fault)
        code = _python(work.folder / "main.py")
    except Exception as error:  # nothing of the code's own gets here
        with suppress(OSError):
            os.write(fault, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def _settle(work: Work, streams: tuple[int, int, int], fault: int) -> None:
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, fault)
    os.closerange(fault + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    os.chdir(work.folder)
    bound(work)
    if work.locked:
        lock()


def bound(work: Work) -> None:
    """Set the limits that the kernel keeps for each process."""
    limits = work.limits
    Path("/proc/self/oom_score_adj").write_text("1000")
    for kind, most in (
        (resource.RLIMIT_DATA, work.base + limits.memory),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_FSIZE, limits.disk),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.cpu, limits.cpu + 1))


def lock() -> None:
    """Give up every privilege, and the system calls and files that the code does not need, for good."""
    kernel.drop_capabilities()
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    landlock.apply([Path(place) for place in view.SCRATCH.values()])
    seccomp.apply()


def _python(main: Path) -> int:
    """What `python main.py` does, up to its exit code."""
    code = 0
    try:
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        loader = importlib.machinery.SourceFileLoader("__main__", str(main))
        module.__file__, module.__loader__ = str(main), loader
        loader.exec_module(module)
        threading._shutdown()  # type: ignore[attr-defined]
    except BaseException as error:
        code = _told(error, str(main))
    atexit._run_exitfuncs()
    _flush()
    return code


def _become(main: Path) -> None:
    """Forget what is ours in this interpreter: modules, arguments, exit functions, the state of random generators."""
    atexit._clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == "agentfly_core"]:
        del sys.modules[name]
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    sys.argv = [str(main)]
    sys.path[:] = [str(main.parent), *(path for path in sys.path[1:] if os.path.isdir(path))]
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = open(number, "w" if number else "r", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _told(error: BaseException, main: str) -> int:
    """Print what ended the code as Python does, without our frames; its exit code."""
    _flush()
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        print(error.code, file=sys.stderr)
        return 1
    trace = error.__traceback__
    while trace and trace.tb_frame.f_code.co_filename != main:
        trace = trace.tb_next
    traceback.print_exception(type(error), error.with_traceback(trace), trace)
    return 1


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
