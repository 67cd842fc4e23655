"""Forks programs from a process that has imported their modules.

    python fork_server.py SOCKET my_agent.py MODULE...

It uses the standard library only, because the interpreter may belong to another environment. Each
message on the socket has a program's arguments, folder and environment. With it come the program's
standard streams and a pipe, to which the server writes the program's process id and exit code. The
server ends when its owner closes the socket.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

LARGEST = 2**18
PID_BYTES = 16


def main(link: socket.socket, script: str, modules: Sequence[str]) -> None:
    """Import modules, fork for each message, and run the script in the forked process."""
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    try:
        for module in modules:
            importlib.import_module(module)
        if "openai" in modules:
            _first_request()
    except Exception as error:  # of any module
        link.send(f"{type(error).__name__}: {error}".encode())
        return
    link.send(b"ready")
    gc.freeze()  # collections in forked processes copy no shared pages
    # lets the kernel reap the processes of `_watch`
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, descriptors, _, _ = socket.recv_fds(link, LARGEST, 4)
        if not message:
            return
        if not os.fork():
            link.close()
            _watch(json.loads(message), script, *descriptors)
            return
        for one in descriptors:
            os.close(one)


def _watch(order: dict[str, Any], script: str, *descriptors: int) -> None:
    """Fork once more: the child runs the script, and its parent reports the child's exit code."""
    *streams, status = descriptors
    # an ignored signal would discard the exit code below
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, b"%d" % code)
        os._exit(0)
    # a session of its own, since a kill must also end the program's children
    os.setsid()
    os.write(status, b"%*d" % (PID_BYTES, os.getpid()))
    os.close(status)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = [script, *order["arguments"]]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        _end(end.code)
    except BaseException:  # an interpreter reports any error before it ends
        sys.excepthook(*sys.exc_info())
        _end(1)
    _end(0)


def _end(code: Any) -> NoReturn:
    """End as an interpreter does, but without the 30 ms for its teardown of modules."""
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    # private, as in multiprocessing: no public function ends the threads of pools
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _first_request() -> None:
    """Make the first request of OpenAI's client, which takes 75 ms longer, without a network."""
    import openai

    # the client's own library: httpx2, or httpx in older versions
    httpx: Any = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__]
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}}]}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=reply))
    web = httpx.Client(transport=transport)
    with openai.OpenAI(api_key="-", base_url="http://localhost", http_client=web) as client:
        client.chat.completions.create(model="-", messages=[{"role": "user", "content": ""}])


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3:])
