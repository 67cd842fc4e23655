"""Ports of this machine's loopback interface: whether one is free, and who has it."""

from __future__ import annotations

import socket

import psutil

LONGEST = 80


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
        raise ValueError(
            f"Port {port}, which {use} needs, is used by {holder(port)}. End that, or choose "
            f"another port: agentfly up {option} {port + 1}"
        )
