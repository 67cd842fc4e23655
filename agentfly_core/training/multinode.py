"""The program that starts a command on every node of a learner, and ends it everywhere once it
ended anywhere.

    python -m agentfly_core.training.multinode --nodes worker-1 worker-2 -- COMMAND...

The first node is this machine, where the command is a child of this process. On the others it is
started through ssh, by the same Python in the same folder, under a watchdog (remote_watchdog.py).
In the command `{node}` stands for the number of the node, `{port}` for a free port of the first.
"""

from __future__ import annotations

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
"""What the variables begin with that the command needs on other nodes, too; none of them holds a
secret.
"""
INTERVAL = 1.0


def main() -> None:
    """Run until a node's part ends, or SIGTERM comes; the first node's part is ended politely."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", nargs="+", required=True)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
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
                with suppress(BrokenPipeError):  # it has ended, which is seen above
                    pipe.write(remote_watchdog.SIGN)
            time.sleep(INTERVAL)
        sys.exit(f"On {ended[0]} it ended with exit code {parts[ended[0]].returncode}.")
    finally:
        parts[here].terminate()
        parts[here].wait()


def free_port(node: str) -> int:
    """A port on which this machine can listen as `node`; raises ValueError where it has no such
    name.
    """
    try:
        with socket.create_server((node, 0)) as server:
            return int(server.getsockname()[1])
    except OSError as error:
        raise ValueError(
            f"The first node of the hostfile is {node!r}, and this machine cannot listen as that "
            f"({error}): name this machine first, as the other nodes call it."
        ) from error


def remote(command: Sequence[str]) -> str:
    """What another node's shell runs: the command under a watchdog, where and with what it is
    run here.
    """
    handed = [f"{name}={value}" for name, value in os.environ.items() if name.startswith(HANDED_ON)]
    there = ["env", *handed, sys.executable, "-m", remote_watchdog.__name__, *command]
    return f"cd {shlex.quote(os.getcwd())} && exec {shlex.join(there)}"


def _placed(command: Sequence[str], node: int, port: int) -> list[str]:
    return [{"{node}": str(node), "{port}": str(port)}.get(word, word) for word in command]


if __name__ == "__main__":
    main()
