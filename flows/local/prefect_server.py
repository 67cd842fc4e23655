"""Run the project's own Prefect server with its UI, and provide a Prefect API for this process."""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

import httpx

from agentfly_core.system.service import new_address, supervised
from flows.local.own_servers import GUARD, SERVES, USER, Program, free_port, mark, password, shown
from flows.local.state_dirs import Places

logger = logging.getLogger(__name__)
PATIENCE = httpx.Timeout(60.0, connect=5.0)  # a busy server answers late
PREFECT = [sys.executable, "-m", "flows.local.prefect_cli"]
PORT = 4200
"""The port of the project's Prefect UI. If another program uses it, a free port is chosen."""
POOL, WORKER = "agentfly", "agentfly-up"
"""The names of the work pool of all deployments, and of the worker of `agentfly up`."""
SERVER_PORT = "PREFECT_SERVER_API_PORT"
# services of Prefect that are not needed in a server for a single command
SERVICES = ("SCHEDULER", "LATE_RUNS", "FOREMAN", "TRIGGERS")
COMMAND_SERVER = {
    **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in SERVICES},
    "PREFECT_SERVER_UI_ENABLED": "false",
    SERVES: "its own process",  # with this mark, other processes do not find the server
}


def prefect_server(state: Path, port: int) -> Program:
    """Return the program that serves Prefect's API and UI at this port of 127.0.0.1."""
    place = {"PREFECT_SERVER_API_HOST": "127.0.0.1", SERVER_PORT: str(port)}
    command = [*PREFECT, "server", "start"]
    return Program("prefect", command, server_env(state) | place)


def server_env(state: Path) -> dict[str, str]:
    """Return the environment variables of a project's Prefect server.

    One variable has the server's password. Other processes can find the server by the variable
    AGENTFLY_SERVES.
    """
    return {
        GUARD: f"{USER}:{password(state)}",
        # if the database is locked, Prefect's library docket logs a hundred lines per query
        "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
        **mark("prefect", state),
    }


def worker(api: Mapping[str, str]) -> Program:
    """Return the program of the Prefect worker. It starts scheduled flow runs within 2 s.

    `api` has the environment variables with the address and the password of the Prefect API.
    """
    command = [*PREFECT, "worker", "start", "--pool", POOL]
    command += ["--type", "process", "--name", WORKER]
    return Program("worker", command, {"PREFECT_WORKER_QUERY_SECONDS": "2", **api})


@contextmanager
def prefect_api(places: Places) -> Iterator[Callable[[], None]]:
    """Provide a Prefect API for this process during the `with` block.

    If the API at `places.api` answers, it is used. Otherwise a new server is started on the
    project's database, and stopped at the end of the block. The server needs 4 seconds to start, or
    9 seconds with a new database. Before the first flow, call the yielded function. It waits until
    the API answers, and raises ServiceLost if the server fails.
    """
    if places.api and answers(places.api):
        yield lambda: None
        return
    if places.api:
        logger.warning(
            "The Prefect server %s does not answer, so this command starts its own server.",
            places.prefect,
        )
    port = free_port()
    server, url = prefect_server(places.state, port), f"http://127.0.0.1:{port}/api"
    address, log = new_address("prefect"), places.state / "logs" / "prefect.log"
    env = server.env | COMMAND_SERVER
    with supervised(server.kind, server.command, env, address, log, "") as service:
        use(url, server.env[GUARD])
        try:
            yield partial(service.wait, partial(answers, url))
        finally:
            deliver()


def use(url: str, auth: str = "") -> None:
    """Let this process and its children use the Prefect API at `url`.

    This works before and after the import of prefect. `auth` is the server's NAME:PASSWORD. If it
    is empty, the environment variable PREFECT_API_AUTH_STRING is not changed.
    """
    os.environ["PREFECT_API_URL"] = url
    if auth:
        os.environ["PREFECT_API_AUTH_STRING"] = auth
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()


def deliver() -> None:
    """Send the queued events and log lines of this process to the Prefect server.

    Waits at most 5 s for the events, and then at most 5 s for the log lines.
    """
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogHandler

        EventsWorker.drain_all(timeout=5)
        APILogHandler().flush()


def leave(code: int) -> NoReturn:
    """Exit with a status code.

    If the Prefect server has died, exit without Prefect's exit handlers. These handlers would try
    for minutes to reach the server.
    """
    if "prefect" in sys.modules and not answers(os.environ.get("PREFECT_API_URL", "")):
        for stream in (sys.stdout, sys.stderr):
            # `os._exit` does not flush
            stream.flush()
        os._exit(code)
    sys.exit(code)


def answers(url: str) -> bool:
    """Return whether a Prefect API or an MLflow server answers at a URL."""
    try:
        # httpx reads certificates by default, which takes 24 ms, but http needs none
        verify = url.startswith("https")
        return httpx.get(f"{url}/health", timeout=PATIENCE, verify=verify).status_code < 500
    except (httpx.TransportError, httpx.InvalidURL):
        return False


def prefect_command(places: Places, words: Sequence[str]) -> NoReturn:
    """Replace this process by the command `prefect WORDS...` on the project's Prefect database.

    With the words `server start`, the server requires a password. If the environment does not
    contain a password, the project's password is used.
    """
    env: dict[str, str] = {}
    if words[:2] == ["server", "start"]:
        own = server_env(places.state)
        env = {name: value for name, value in own.items() if not os.environ.get(name)}
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--port")
        if port := parser.parse_known_args(words)[0].port:
            env[SERVER_PORT] = port  # Prefect's UI ignores the option --port
    elif words[:1] != ["server"] and not places.api:
        # a Prefect server of another project must not get the data of this command
        env["PREFECT_API_URL"] = f"http://127.0.0.1:{free_port(PORT)}/api"
    Program("prefect", [*PREFECT, *words], env).become()


def open_flow_run(places: Places, flow_run: str) -> None:
    """Print the address of a flow run in the Prefect UI.

    If no server is running, also print the server's user and password, and replace this process by
    a Prefect server with this address. If stdout is not a terminal, the path of the password's file
    is printed instead of the password.
    """
    port = free_port(PORT)
    print(flow_run_page(places.api or f"http://127.0.0.1:{port}/api", flow_run), flush=True)
    if not places.api:
        print(f"Sign in with {USER}:{shown(places.state)}", flush=True)
        prefect_server(places.state, port).become()


def flow_run_page(api: str, flow_run: str) -> str:
    """Return the address of a flow run in the Prefect UI.

    `api` is the address of the Prefect API. If it is empty, the default port of 127.0.0.1 is used.
    """
    return f"{api.removesuffix('/api') or f'http://127.0.0.1:{PORT}'}/runs/flow-run/{flow_run}"
