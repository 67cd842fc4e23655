"""The program that sandbox backends without a fork server start for each execution.

The command is `python -m agentfly_core.sandbox.guest.spawned 7 /sandbox locked`. The first argument
is the file descriptor of a socket that is connected to the backend. The second argument is the
folder of the code. With "locked", this process is the first process of its namespaces and may mount
file systems. With "open", it is a plain process. Further arguments are file descriptors of the
control groups that this process enters.
"""

import os
import shutil
import signal
import socket
import sys
from pathlib import Path

from agentfly_core.sandbox.guest import init_process, kernel, view


def main() -> None:
    """Run the code that the backend sends over a socket, in the namespaces of this process."""
    connection, folder = socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2])
    locked, cgroups = sys.argv[3] == "locked", [int(word) for word in sys.argv[4:]]
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in server.py
        if locked:
            if os.getpid() != 1:
                raise OSError("this process is not the first process of its namespace")
            # not set for a plain process, which must survive to end the code
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        init_process.enter(cgroups)
        sys.executable = str(view.interpreter())
        init_process.serve(connection, folder, bool(cgroups), locked)
    except OSError as error:
        init_process.refuse(connection, f"{type(error).__name__}: {error}")
    finally:
        if not locked:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
