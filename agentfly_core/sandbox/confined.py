"""Run a program in its own sandbox. Only one port in the sandbox is connected to this process."""

import asyncio
import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence

from agentfly_core.sandbox.backends import SOURCES, Bubblewrap, Unavailable, Unsafe
from agentfly_core.sandbox.guest import confined as guest
from agentfly_core.sandbox.preflight import chosen

ADDRESS = f"http://{guest.HOST}:{guest.PORT}"
"""The address at which programs in the sandbox reach the server that this process runs."""
FOLDERS = {"HOME": "/sandbox", "TMPDIR": "/tmp"}
"""Environment variables with the paths of the program's private folders in the sandbox."""
_BEGIN = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from agentfly_core.sandbox.guest.confined import main; main()"
)
_PATHS = """
import json, os, sys, sysconfig
links = [sys.executable]
while os.path.islink(links[-1]):
    links.append(os.path.abspath(os.path.join(links[-1], "..", os.readlink(links[-1]))))
library, program, packages = os.path.dirname(sysconfig.get_path("stdlib")), links[0], sys.prefix
if sys.prefix == sys.base_prefix:
    # no virtual environment, which names its library: it is searched beside the program
    program, packages = links[-1], sysconfig.get_path("purelib")
# packages of editable installations, which setuptools maps to their folders
finders = [one for name, one in sys.modules.items() if name.startswith("__editable__")]
editable = [folder for finder in finders for folder in finder.MAPPING.values()]
print(json.dumps([program, *links, packages, library, *editable]))
"""


def isolates() -> bool:
    """Return whether the sandbox of this machine isolates programs. The backend `unsafe` does not.

    Raises Unavailable if the sandbox cannot run programs. The message contains the reason.
    """
    sandbox = chosen()
    if isinstance(sandbox.backend, Bubblewrap):
        raise Unavailable(
            "An agent's program needs the sandbox backend forkserver, but the backend is bubblewrap"
            + "".join(f" ({name}: {why})" for name, why in sandbox.refused.items())
            + ". Set AGENTFLY_SANDBOX=forkserver."
        )
    return not isinstance(sandbox.backend, Unsafe)


def words(command: Sequence[str], files: Sequence[str], link: socket.socket) -> tuple[str, ...]:
    """Return a command that runs `command`, such as `["python", "agent.py"]`, in a sandbox.

    `files` are visible in the sandbox. The program can connect to port 80 inside the sandbox. The
    sandbox sends the listening socket of this port over `link`. Call `listener` with the other end
    of `link` to receive the socket. Raises OSError or CalledProcessError if the interpreter
    `command[0]` cannot be run.
    """
    python, *paths = _interpreter(command[0])
    shown = [*map(os.path.abspath, files), *paths]
    begin = (sys.executable, "-I", "-c", _BEGIN, str(SOURCES), str(link.fileno()))
    return (*begin, *shown, "--", python, *command[1:])


@functools.cache
def _interpreter(python: str) -> tuple[str, ...]:
    """Return the path of an interpreter, followed by the files and folders that it needs.

    The interpreter needs its library, its symbolic links, and packages, including the packages of
    editable installations.
    """
    command = [python, "-I", "-c", _PATHS]
    return tuple(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


async def listener(link: socket.socket) -> socket.socket:
    """Wait until a sandbox sends its listening socket over `link`, and return the socket.

    The program in the sandbox connects to this socket. Raises Unavailable if the sandbox fails.
    """
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(link, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(link)
    message, descriptors, _, _ = socket.recv_fds(link, 1000, 1)
    if not descriptors:
        raise Unavailable(f"The sandbox of a program failed: {message.decode() or 'it exited'}")
    received = socket.socket(fileno=descriptors[0])
    received.set_inheritable(False)  # not set by recv_fds
    return received
