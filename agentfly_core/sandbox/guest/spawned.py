"""The program of backends that start one process for each execution.

python -m agentfly_core.sandbox.guest.spawned 7 /sandbox locked          (7: the connection)

"locked": it is the first process of namespaces of its own, in which it may mount; "open": it is a
plain process, and the folder is removed at its end.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from agentfly_core.sandbox.guest import init_process, kernel, protocol, view
from agentfly_core.sandbox.guest.child_setup import Work
from agentfly_core.sandbox.guest.protocol import Limits


def main() -> None:
    """Run one order in the namespaces that this process was started in."""
    connection, folder, locked = (
        socket.socket(fileno=int(sys.argv[1])),
        Path(sys.argv[2]),
        sys.argv[3] == "locked",
    )
    cgroups = [int(word) for word in sys.argv[4:]]
    try:
        base = _settled(locked, cgroups)
        order, blobs = protocol.read(connection.makefile("rb"))
        limits = Limits(**order["limits"])
        if locked:
            init_process.furnish(limits)
        work = Work(folder, limits, base, bool(cgroups), locked, order["kept"])
        init_process.serve(connection, order, blobs, work)
    except (OSError, ValueError, EOFError) as error:
        with suppress(OSError):
            connection.sendall(protocol.packed({"unavailable": f"{type(error).__name__}: {error}"}))
    finally:
        if not locked:
            shutil.rmtree(folder, ignore_errors=True)


def _settled(locked: bool, cgroups: Sequence[int]) -> int:
    """Become an init process; returns the memory in bytes that a process starts with."""
    if locked and os.getpid() != 1:
        raise OSError("not the first process of its namespace")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in server.py
    if locked:  # else nobody would end the code; the connection's end tells it too
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    init_process.enter(cgroups)
    sys.executable = str(view.interpreter())
    return int(Path("/proc/self/statm").read_text().split()[5]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()
