"""The program that runs a command on every node of a learner, until the command ends on any node.

    python -m agentfly_core.training.multinode --nodes worker-1 worker-2 -- COMMAND...

The first node is this machine. The other nodes are reached by ssh, and need the same Python and the
same folder. In the command, `{node}` is replaced by the node's number, and `{port}` by a free port
of the first node.
"""

import argparse
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from agentfly_core.system.formats.text import environment
from agentfly_core.training import remote_watchdog

SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ControlPath=none"]
HANDED_ON = (
    "PATH",
    "PYTHON",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "OMP_",
    "GOMP_",
    "GLIBC_TUNABLES",
    "DS_",
    "HF_HUB_DISABLE_",
    "NCCL_",
    "GLOO_",
    "UCX_",
    "PYTORCH_",
    "TORCH_",
)
"""Prefixes of the environment variables that are passed to other nodes.

None of them is a secret.
"""
INTERVAL = 1.0


def main() -> None:
    """Run a command on all nodes. The arguments of this program contain the command.

    If the command ends on one node, or if SIGTERM arrives, the command is ended on all nodes.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", nargs="+", required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    # an exception, so that `finally` ends the command on all nodes
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    port = free_port(options.nodes[0])
    here, *others = options.nodes
    parts = {here: subprocess.Popen(_placed(options.command, 0, port), stdin=subprocess.DEVNULL)}
    try:
        for number, node in enumerate(others, 1):
            command = [*SSH, node, remote(_placed(options.command, number, port))]
            parts[node] = subprocess.Popen(command, stdin=subprocess.PIPE, bufsize=0)
        while not (ended := [name for name, part in parts.items() if part.poll() is not None]):
            for pipe in filter(None, (part.stdin for part in parts.values())):
                # the pipe is broken if the command has ended on this node, which is reported above
                with suppress(BrokenPipeError):
                    pipe.write(remote_watchdog.SIGN)
            time.sleep(INTERVAL)
        sys.exit(f"On {ended[0]} the command ended: exit code {parts[ended[0]].returncode}.")
    finally:
        parts[here].terminate()
        parts[here].wait()


def free_port(node: str) -> int:
    """Return a free port of this machine.

    `node` is the name of this machine. Raises ValueError if the machine cannot open a port
    under this name.
    """
    try:
        with socket.create_server((node, 0)) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        raise ValueError(
            f"This machine cannot listen as {node!r} ({error}). The first node of the hostfile "
            "must be this machine."
        ) from error


def remote(command: Sequence[str]) -> str:
    """Return a shell command that runs `command` on another node.

    On the other node, a watchdog starts `command`. The watchdog kills `command` if heartbeats from
    this node stop.
    """
    variables = environment().items()
    handed = [f"{name}={value}" for name, value in variables if name.startswith(HANDED_ON)]
    there = ["env", *handed, sys.executable, "-m", remote_watchdog.__name__, *command]
    return f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(there)}"


def _placed(command: Sequence[str], node: int, port: int) -> list[str]:
    return [{"{node}": str(node), "{port}": str(port)}.get(word, word) for word in command]


if __name__ == "__main__":
    main()
