"""Run model-written code in this interpreter.

The code is one program, or several pieces that run one after another in the same module.
"""

import atexit
import importlib.abc
import importlib.machinery
import linecache
import os
import socket
import sys
import threading
import traceback
import types
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path


def only(main: Path, line: socket.socket) -> int:
    """Run the file `main` as the module `__main__`, and return its exit code.

    The control socket `line` is closed before the file runs.
    """
    line.close()
    module = _main()
    loader = importlib.machinery.SourceFileLoader("__main__", str(main))
    module.__file__, module.__loader__ = str(main), loader

    def run() -> None:
        loader.exec_module(module)
        # a private function, as in multiprocessing, because public functions cannot end the threads
        # of pools
        threading._shutdown()  # type: ignore[attr-defined]

    code = _code(run, str(main))
    atexit._run_exitfuncs()
    _flush()
    return code


def each(line: socket.socket) -> int:
    """Run the pieces of code that arrive over the control socket `line`, in one module.

    After each piece, its exit code is sent as one byte. When the other end of the socket is closed,
    return 0. If a piece of code forks, the child process runs only the rest of this piece. In the
    child process, this function then returns the exit code of the piece.
    """
    module, first, number = _main(), os.getpid(), 0
    while descriptors := socket.recv_fds(line, 1, 1)[1]:
        number += 1
        with open(descriptors[0], encoding="utf-8", errors="replace", newline="") as file:
            piece = _Piece(f"<call {number}>", file.read())
        code = _code(partial(piece.exec_module, module), piece.name)
        _flush()
        if os.getpid() != first:
            return code
        line.send(bytes([code]))
    return 0


class _Piece(importlib.abc.ExecutionLoader):
    """A piece of code without a file. Its lines are registered for tracebacks."""

    def __init__(self, name: str, source: str) -> None:
        self.name, self.source = name, source
        linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name

    def get_filename(self, fullname: str) -> str:
        return self.name

    def get_source(self, fullname: str) -> str:
        return self.source


def _main() -> types.ModuleType:
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    return module


def _code(run: Callable[[], None], name: str) -> int:
    """Run code from the file `name`. Print its error, if any, and return its exit code."""
    try:
        run()
    except BaseException as error:  # the code may raise any error
        _flush()
        if isinstance(error, SystemExit):
            if error.code is None or isinstance(error.code, int):
                return (error.code or 0) & 0xFF
            print(error.code, file=sys.stderr)
            return 1
        trace = error.__traceback__
        while trace and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next  # as in Python's own report, without frames of the sandbox
        traceback.print_exception(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


def _flush() -> None:
    for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
        with suppress(Exception):  # the code may have replaced the stream by any object
            getattr(sys, name).flush()
