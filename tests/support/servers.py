"""Servers for tests: Prefect, and a server that records its requests."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

import httpx

from agentfly_core.system.service import supervised
from flows.local.prefect_server import PREFECT, answers
from tests.support.waiting import LIMIT

CREDENTIALS = ("tests", "a-password-of-tests")
AUTH = ":".join(CREDENTIALS)


@contextmanager
def prefect_server(home: Path, address: Path) -> Iterator[str]:
    """The URL of a real Prefect server with a database in `home`; a killed one is started again.

    `address` is the state folder of its supervisor. It requires AUTH; this process and its children
    have it set meanwhile.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}/api"
    env = {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_MEMO_STORE_PATH": str(home / "memo_store.toml"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_API_AUTH_STRING": AUTH,
    }
    command = [*PREFECT, "server", "start", "--host", "127.0.0.1"]
    command += ["--port", str(port)]
    with supervised("prefect", command, env, address, home / "log", "tests") as service:
        service.wait(lambda: answers(url), LIMIT)
        os.environ["PREFECT_API_AUTH_STRING"] = AUTH
        try:
            yield url
        finally:
            del os.environ["PREFECT_API_AUTH_STRING"]


LISTENS = """
import socket, sys
with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    server.listen()
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


@contextmanager
def listener(env: Mapping[str, str] = MappingProxyType({})) -> Iterator[int]:
    """Yield the port of another process with these environment variables."""
    command = [sys.executable, "-S", "-c", LISTENS]
    with subprocess.Popen(
        command, env={**os.environ, **env}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin and process.stdout
        yield int(process.stdout.readline())
        process.stdin.close()


def free_port() -> int:
    """A free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class AskingAgain(httpx.HTTPTransport):
    """Retry a 503 answer of a server with a busy database, like Prefect's client."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The first other answer, or the tenth."""
        for _ in range(9):
            if (answer := super().handle_request(request)).status_code != 503:
                return answer
            answer.close()
        return super().handle_request(request)


def client(api: str = "", auth: tuple[str, str] = CREDENTIALS) -> httpx.Client:
    """A client of a Prefect server with AUTH, or with a user name and password."""
    return httpx.Client(base_url=api, auth=auth, timeout=LIMIT, transport=AskingAgain())


def request(method: str, url: str, **given: Any) -> Any:
    """The server's answer, None without content; an error status fails the test."""
    with client() as http:
        answer = http.request(method, url, **given).raise_for_status()
    return answer.json() if answer.content else None


@dataclass(frozen=True)
class Receiver:
    """An HTTP server that answers `status` to everything, and its requests: `/hook {...}`."""

    url: str
    calls: list[str]


@contextmanager
def receiver(status: int = 200) -> Iterator[Receiver]:
    """An HTTP server within this process that records requests to its URLs."""
    calls: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            calls.append(f"{self.path} {body.decode()}".strip())
            self.send_response(status)
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield Receiver(f"http://127.0.0.1:{server.server_port}", calls)
        finally:
            server.shutdown()
