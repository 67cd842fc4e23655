"""A local chat service in OpenAI's format with replies from the test."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

HttpReply = tuple[int, dict[str, str], bytes]
"""Status, headers and content of an answer."""


@dataclass
class Service:
    """A running service: its address, the requests and their headers."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)


def completion(content: str = "", *calls: tuple[str, str], **choice: Any) -> HttpReply:
    """An answer with this text and calls, name and arguments of each; 10 tokens."""
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    if calls:
        message["tool_calls"] = [
            {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}
            for name, arguments in calls
        ]
    choices = [{"index": 0, "message": message, "finish_reason": "stop", **choice}]
    answer = {"choices": choices, "usage": {"total_tokens": 10}}
    return 200, {}, json.dumps(answer).encode()


@contextmanager
def serving(says: Callable[[dict[str, Any], int], HttpReply]) -> Iterator[Service]:
    """A service that answers with what `says` makes of a request and its number, from 0."""
    service, lock = Service(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(service.asked)
                service.asked.append(body)
                service.headers.append({**dict(self.headers), "path": self.path})
            status, headers, content = says(body, number)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            """A command that ends does not wait for its other answers."""
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        service.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
        yield service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
