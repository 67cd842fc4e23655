"""Prefect servers for tests."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfly_core.system.service import supervised
from flows.local.prefect_server import answers


@contextmanager
def prefect_server(home: Path, address: Path) -> Iterator[str]:
    """The URL of a real Prefect server with a database in `home`; a killed one is started again.

    `address` is where its supervisor keeps its state.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    env = {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_MEMO_STORE_PATH": str(home / "memo_store.toml"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    command = [sys.executable, "-m", "prefect", "server", "start"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    with supervised("prefect", command, env, address, home / "log", "tests") as service:
        service.wait(lambda: answers(url), 120)
        yield url
