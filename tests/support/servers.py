"""Prefect servers for tests."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfly_core.system.service import supervised
from flows.local.prefect_server import answers


@contextmanager
def prefect_server(home: Path) -> Iterator[str]:
    """The address of a real Prefect server with a database in `home`; one that is killed is started again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    env = {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_MEMO_STORE_PATH": str(home / "memo_store.toml"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    }
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with tempfile.TemporaryDirectory(prefix="agentfly-", ignore_cleanup_errors=True) as folder:
        with supervised("prefect", command, env, Path(folder) / "s" / "prefect.sock", home / "log", "tests") as service:
            service.wait(lambda: answers(url), 120)
            yield url
