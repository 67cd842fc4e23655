"""Run a program in its own sandbox, where a single port is connected to this process."""

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
"""The address in the sandbox that is connected to this process."""
FOLDERS = {"HOME": "/sandbox", "TMPDIR": "/tmp"}
"""Environment variables of the program that name its private folders in the sandbox."""
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
    """Whether this machine's sandbox isolates programs. False for the backend `unsafe`.

    Raises Unavailable if the sandbox cannot run programs. The message contains a remedy.
    """
    sandbox = chosen()
    if isinstance(sandbox.backend, Bubblewrap):
        raise Unavailable(
            "The sandbox backend bubblewrap cannot run an agent's program, expected forkserver"
            + "".join(f" ({why})" for why in sandbox.refused.values())
        )
    return not isinstance(sandbox.backend, Unsafe)


def words(command: Sequence[str], files: Sequence[str], link: socket.socket) -> tuple[str, ...]:
    """Return the command that runs `command`, `[python, ...]`, in a sandbox with these files.

    The sandbox sends its listening socket over `link`; receive it at the other end with `listener`.
    Raises OSError or CalledProcessError if `python` cannot be run.
    """
    python, *paths = _interpreter(command[0])
    shown = [*map(os.path.abspath, files), *paths]
    begin = (sys.executable, "-I", "-c", _BEGIN, str(SOURCES), str(link.fileno()))
    return (*begin, *shown, "--", python, *command[1:])


@functools.cache
def _interpreter(python: str) -> tuple[str, ...]:
    """Return the path of an interpreter, followed by the files and folders that it needs: its
    symbolic links, its packages, its library, and packages of editable installations.
    """
    command = [python, "-I", "-c", _PATHS]
    return tuple(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))


async def listener(link: socket.socket) -> socket.socket:
    """Wait for the listening socket of a sandbox, and return it. Raises Unavailable."""
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
    received.set_inheritable(False)  # recv_fds ignores MSG_CMSG_CLOEXEC
    return received
