"""A process that imports modules once, and then forks programs that need these modules.

    python fork_server.py SOCKET my_agent.py MODULE...

It uses only the standard library, because it may run in the Python environment of the programs.
Each message on the socket starts a program. The message contains the program's arguments, working
directory and environment variables, and four file descriptors: the program's standard streams, and
a pipe. The process id and then the exit code of the program are written to this pipe. The server
ends when the other end of the socket is closed.
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
    """Import the modules. Then, for each message on `link`, fork a process that runs the script."""
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
    gc.freeze()  # garbage collections in forked processes then copy no shared pages
    # with this setting, the kernel reaps the forked processes
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
    """Fork a child process that runs the script, and wait for its end.

    The last of the `descriptors` is a pipe. The process id of the child and its exit code are
    written to this pipe.
    """
    *streams, status = descriptors
    # if SIGCHLD were still ignored, the exit code below would be lost
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        for stream in streams:
            os.close(stream)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(status, b"%d" % code)
        os._exit(0)
    # in a new session: one kill of the process group then also ends the program's children
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
    """End the process as a Python interpreter does, but skip the teardown of modules.

    The teardown would take 30 ms.
    """
    if not isinstance(code, int | None):
        print(code, file=sys.stderr)
        code = 1
    # a private function, as in multiprocessing, because threads of pools cannot be ended by a
    # public one
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit((code or 0) & 0xFF)


def _first_request() -> None:
    """Make a request with OpenAI's client to a mock server, without a network.

    The first request of a process takes 75 ms longer than later requests. After this call, forked
    programs save this time.
    """
    import openai

    # the HTTP library of the client: httpx2, or httpx in older versions
    httpx: Any = sys.modules[openai.DefaultHttpxClient.__mro__[1].__module__]
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}}]}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=reply))
    web = httpx.Client(transport=transport)
    with openai.OpenAI(api_key="-", base_url="http://localhost", http_client=web) as client:
        client.chat.completions.create(model="-", messages=[{"role": "user", "content": ""}])


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), sys.argv[2], sys.argv[3:])
