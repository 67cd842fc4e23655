"""Ports of this machine's loopback interface: whether one is free, and which process has it."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

LONGEST = 80
SERVES = "AGENTFLY_SERVES"
"""The environment variable of a project's servers: "prefect /home/user/shop/.agentfly"."""
REACHED = {"127.0.0.1", "0.0.0.0", "::"}
"""Addresses of servers that answer at 127.0.0.1."""


def mark(*serves: str | Path) -> dict[str, str]:
    """The environment variable of a project's own server: `mark("prefect", state)`."""
    return {SERVES: " ".join(map(str, serves))}


def own(*serves: str | Path) -> dict[int, Mapping[str, str]]:
    """Return the environments of the running servers with a mark, by port: `own("prefect", state)`.

    Only processes of this user count whose environment has the mark. Another program on the usual
    port is never one of them, whatever it answers.
    """
    servers = {}
    for connection in psutil.net_connections("tcp"):
        is_server = connection.status == psutil.CONN_LISTEN and connection.laddr.ip in REACHED
        if is_server and connection.pid:
            with suppress(psutil.Error):
                environment = psutil.Process(connection.pid).environ()
                if mark(*serves).items() <= environment.items():
                    servers[connection.laddr.port] = environment
    return servers


def first_free(ports: Sequence[int], use: str) -> int:
    """Return the first free port; raises ValueError if other programs use all of them."""
    if free := next(filter(is_free, ports), None):
        return free
    raise ValueError(
        f"Other programs use all ports from {ports[0]} to {ports[-1]}, one of which {use} needs: "
        "end one of them."
    )


def is_free(port: int) -> bool:
    """Whether a server could listen there."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def holder(port: int) -> str:
    """The process that listens there: "process 4711 (python -m prefect server start)"."""
    try:
        listening = [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        pid = next(c.pid for c in listening if c.laddr.port == port and c.pid)
        command = " ".join(psutil.Process(pid).cmdline())
    except (StopIteration, psutil.Error):  # another user's
        return "another program"
    return f"process {pid} ({command[:LONGEST]})"


def require_free(port: int, use: str, option: str) -> None:
    """Raise ValueError for a port that is taken; `use` is what needs it."""
    if not is_free(port):
        raise ValueError(taken(port, use, option))


def taken(port: int, use: str, option: str) -> str:
    """The error of a port that another program has."""
    return (
        f"Port {port}, which {use} needs, is used by {holder(port)}. End that, or choose "
        f"another port: agentfly up {option} {port + 1}"
    )
