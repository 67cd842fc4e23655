"""The fork server of the sandbox. It isolates itself, imports common modules, and starts a process
for each execution of model-written code.

It is started as `python -m agentfly_core.sandbox.guest.server 3`, where 3 is the file descriptor of
a socket for requests. The server runs in its own mount and process namespaces, so all executions
end with the server. It exits when the other end of the socket is closed.
"""

import gc
import importlib
import os
import signal
import socket
import sys
import warnings
from collections.abc import Iterable
from contextlib import suppress

from agentfly_core.sandbox.guest import init_process, kernel, protocol, view

DESCRIPTORS = 8
LONGEST = 2**18
"""The size of the buffer for a message in bytes.

The buffer is larger than the largest message that the socket can send. The end of a message that
is longer than the buffer would be lost.
"""
FRESH = (
    kernel.NEWUSER | kernel.NEWPID | kernel.NEWNS | kernel.NEWIPC | kernel.NEWNET | kernel.NEWUTS
)
WARM = (
    *("collections", "dataclasses", "datetime", "decimal", "fractions", "functools", "heapq"),
    *("itertools", "json", "math", "random", "re", "statistics", "string", "threading"),
    *("traceback", "typing", "numpy", "numpy.random"),
)


def main() -> None:
    link = socket.socket(fileno=int(sys.argv[1]))
    # ignored: with Python's handler for SIGINT, the code could end its init process (PID 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        uid, gid = os.geteuid(), os.getegid()
        kernel.unshare(kernel.NEWNS | kernel.NEWPID | (kernel.NEWUSER if uid else 0))
        if uid:
            kernel.map_user((uid, gid), (uid, gid))
        if first := os.fork():
            link.close()
            os.waitpid(first, 0)
            return
        _settle()
    except (OSError, ValueError) as error:
        with suppress(OSError):
            link.send(protocol.packed({"unavailable": str(error)}))
        os._exit(1)
    _serve(link)
    os._exit(0)


def _settle() -> None:
    """Give up the access to the machine's files and all privileges. Then import common modules."""
    sys.executable = str(view.interpreter())
    sites = view.sites()
    view.enter()
    sys.path += [site for site in sites if site not in sys.path]
    init_process.become_nobody()
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of user clears it
    os.environ["PYTHONPATH"] = ":".join(sites)
    _warm(WARM)


def _warm(modules: Iterable[str]) -> None:
    """Import modules, so that processes that are forked later need not import them."""
    for name in modules:
        # joblib warns that it cannot use several processes
        with suppress(ImportError), warnings.catch_warnings(action="ignore"):
            importlib.import_module(name)
    gc.freeze()


def _serve(link: socket.socket) -> None:
    """For each message on the socket `link`, start a process that runs model-written code.

    A message contains the names of modules that are imported before the process starts.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps ended executions
    link.send(protocol.packed({"ready": True}))
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, LONGEST, DESCRIPTORS)
        if not descriptors:
            return
        if missing := {*message.decode().split()} - sys.modules.keys():
            _warm(sorted(missing))
        _start(link, descriptors)


def _start(link: socket.socket, descriptors: list[int]) -> None:
    uid, gid, why = os.geteuid(), os.getegid(), ""
    with socket.socket(fileno=descriptors[0]) as connection:
        try:
            pid = kernel.clone(FRESH)
        except OSError as error:
            pid, why = os.fork(), str(error)
        if pid == 0:
            link.close()
            if why:
                init_process.refuse(connection, why)
            else:
                init_process.keep(connection, descriptors[1:], uid, gid)
            os._exit(0)
    for cgroup in descriptors[1:]:
        os.close(cgroup)


if __name__ == "__main__":
    main()
