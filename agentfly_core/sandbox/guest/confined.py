"""Run a program in its own sandbox.

Over the network, the program can reach the outside only through the port 80 of 127.0.0.1.

The arguments of this program are `LINK PATH... -- PROGRAM ARGUMENT...`. PROGRAM can read only these
paths and system files. LINK is the file descriptor of a socket. The listening socket of the port is
sent over the socket LINK. If the sandbox cannot be made, an error text is sent instead. This
process shares its standard streams with PROGRAM, and ends with the exit code or the signal of
PROGRAM.
"""

import os
import resource
import select
import signal
import socket
import struct
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from typing import NoReturn

from agentfly_core.sandbox.guest import child_setup, init_process, kernel, view
from agentfly_core.sandbox.guest.monitor import in_memory, memory_used
from agentfly_core.sandbox.guest.protocol import MIB, Limits

HOST, PORT = "127.0.0.1", 80
LIMITS = Limits(memory=4096 * MIB, processes=256, disk=256 * MIB, inodes=8192)
NAMESPACES = kernel.NEWNS | kernel.NEWPID | kernel.NEWIPC | kernel.NEWNET | kernel.NEWUTS
NOT_STARTED = 126
GLANCE = 0.5
"""Seconds between two measurements of the memory that the sandbox uses.

A measurement takes about one millisecond for each process.
"""
_SET_FLAGS, _UP = 0x8914, 1  # linux/sockios.h, linux/if.h


def main() -> None:
    """Run the program in the command-line arguments in new namespaces.

    Exit with the exit code or signal of this program.
    """
    end = sys.argv.index("--")
    link, paths = socket.socket(fileno=int(sys.argv[1])), [*map(Path, sys.argv[2:end])]
    _prepare()
    reading, writing = os.pipe()
    try:
        _unshare()
        first = os.fork()
    except OSError as error:
        _refuse(link, error)
    if first == 0:
        _keep(link, paths, sys.argv[end + 1 :], writing)
    link.close()
    os.close(writing)
    _end_as(first, reading)


def _prepare() -> None:
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # stdin is copied, because a file of this machine could be opened again for writing
    with open(0, "rb", closefd=False) as given:
        os.dup2(in_memory(given.read()), 0)


def _unshare() -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(NAMESPACES | (kernel.NEWUSER if uid else 0))
    if uid:
        kernel.map_user((uid, gid), (uid, gid))


def _end_as(first: int, codes: int) -> NoReturn:
    code = int(os.read(codes, 16) or -signal.SIGKILL)
    os.waitpid(first, 0)
    if code < 0:
        os.kill(os.getpid(), -code)
    os._exit(code)


def _keep(link: socket.socket, paths: list[Path], words: list[str], codes: int) -> NoReturn:
    """Act as the first process in the sandbox's namespaces.

    Start the program as a child process, and reap processes until the program ends. The listening
    socket of the port PORT is sent out of the sandbox over `link`. The program's exit code is
    written to the file descriptor `codes`.
    """
    folder = Path.cwd()
    try:
        _enter(paths, folder)
        listener = _listener()
        _become_user()
        # set before the program starts, because the program must not read this process
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        if (program := os.fork()) == 0:
            _become(words, folder)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [listener.fileno()]))]
        link.sendmsg([b"."], rights)
    except OSError as error:
        _refuse(link, error)
    link.close()
    listener.close()
    os.write(codes, b"%d" % _exit_code(program))
    os._exit(0)


def _exit_code(program: int) -> int:
    """Reap processes until the program ends, and return its exit code.

    If all processes together exceed the memory limit, kill all of them.
    """
    end = os.pidfd_open(program)
    while True:
        select.select([end], [], [], GLANCE)
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == program:
                return os.waitstatus_to_exitcode(ended[1])
        # measured, because RLIMIT_DATA limits neither shared memory nor the sum of all processes
        if memory_used() > LIMITS.memory:
            os.write(2, f"The sandbox has at most {LIMITS.memory // MIB} MiB of memory.\n".encode())
            os.kill(-1, signal.SIGKILL)


def _enter(paths: Sequence[Path], folder: Path) -> None:
    """Enter a new root directory.

    The new root contains these paths, the working directory and private folders.
    """
    os.umask(0o022)
    socket.sethostname("sandbox")
    root, shown = view.new_root(), view.with_system(paths)
    # mounted first, because a path may be in one of the private folders
    init_process.furnish(LIMITS, root)
    view.show(shown, root)
    (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
    view.become_root(root, [*shown, folder / "file"])


def _listener() -> socket.socket:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        ioctl(any_socket, _SET_FLAGS, struct.pack("16sh22x", b"lo", _UP))
    return socket.create_server((HOST, PORT))


def _become_user() -> None:
    """Become user 1000 of a new user namespace, without rights outside of this namespace."""
    init_process.become_nobody()
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEWUSER)
    kernel.map_user((init_process.UID, init_process.UID), (uid, gid))
    # needed, because a program may erase the mark by which the programs of dead owners are found
    # and killed
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _become(words: list[str], folder: Path) -> NoReturn:
    try:
        # an undumpable process cannot write its own files in /proc
        kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
        # a new process group, because the old group contains the process outside, which the program
        # must not signal
        os.setsid()
        os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        os.chdir(folder)
        child_setup.bound(child_setup.Work(view.WORK, LIMITS, False, True, kept=True))
        child_setup.lock(network=True)
        os.execv(words[0], words)
    except Exception as error:  # the program must not run outside of the sandbox
        os.write(2, f"The sandbox failed: {type(error).__name__}: {error}\n".encode())
    os._exit(NOT_STARTED)


def _refuse(link: socket.socket, error: OSError) -> NoReturn:
    with suppress(OSError):
        link.send(str(error).encode())
    os._exit(NOT_STARTED)
