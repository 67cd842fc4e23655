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
"""The port of the project's Prefect UI, unless another program uses it."""
POOL, WORKER = "agentfly", "agentfly-up"
"""The work pool of all deployments, and the worker of `agentfly up`."""
SERVER_PORT = "PREFECT_SERVER_API_PORT"
# services that the server of a single command can do without
SERVICES = ("SCHEDULER", "LATE_RUNS", "FOREMAN", "TRIGGERS")
COMMAND_SERVER = {
    **{f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false" for name in SERVICES},
    "PREFECT_SERVER_UI_ENABLED": "false",
    SERVES: "its own process",  # no other process may find it
}


def prefect_server(state: Path, port: int) -> Program:
    """Return the program of Prefect's server with its UI, on 127.0.0.1."""
    place = {"PREFECT_SERVER_API_HOST": "127.0.0.1", SERVER_PORT: str(port)}
    command = [*PREFECT, "server", "start"]
    return Program("prefect", command, server_env(state) | place)


def server_env(state: Path) -> dict[str, str]:
    """Return the environment variables of a project's Prefect server: its password and its mark."""
    return {
        GUARD: f"{USER}:{password(state)}",
        # docket logs a hundred lines about a locked database for each query of a worker
        "PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL",
        **mark("prefect", state),
    }


def worker(api: Mapping[str, str]) -> Program:
    """Return the program of the worker, which starts due flow runs within 2 s. `api` is the result
    of `own_api`.
    """
    command = [*PREFECT, "worker", "start", "--pool", POOL]
    command += ["--type", "process", "--name", WORKER]
    return Program("worker", command, {"PREFECT_WORKER_QUERY_SECONDS": "2", **api})


@contextmanager
def prefect_api(places: Places) -> Iterator[Callable[[], None]]:
    """Give this process a Prefect API: the chosen API if it answers, otherwise a new server on the
    project's database. A new server ends with the block.

    A server needs 4 seconds to start (9 on a new database). Import other modules meanwhile, and
    call the yielded function before the first flow. The function waits until the API answers, and
    raises ServiceLost if the server fails.
    """
    if places.api and answers(places.api):
        yield lambda: None
        return
    if places.api:
        logger.warning(
            "Prefect: %s does not answer: this command has its own server.", places.prefect
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
    """Set the Prefect API of this process and its children, before or after prefect's import.

    `auth` is the server's NAME:PASSWORD, if the environment has another one.
    """
    os.environ["PREFECT_API_URL"] = url
    if auth:
        os.environ["PREFECT_API_AUTH_STRING"] = auth
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()


def deliver() -> None:
    """Send Prefect's queued events and log lines before its server ends.

    Gives up after some seconds.
    """
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogHandler

        EventsWorker.drain_all(timeout=5)
        APILogHandler().flush()


def leave(code: int) -> NoReturn:
    """End this process at once if its Prefect server has died. Otherwise Prefect would retry for
    minutes.
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
        # reading the certificates takes 24 ms, also for http
        verify = url.startswith("https")
        return httpx.get(f"{url}/health", timeout=PATIENCE, verify=verify).status_code < 500
    except (httpx.TransportError, httpx.UnsupportedProtocol):
        return False


def prefect_command(places: Places, words: Sequence[str]) -> NoReturn:
    """Replace this process by `prefect WORDS...`, with the project's Prefect database and profile.

    A server requires the project's password, unless the environment sets another one.
    """
    env: dict[str, str] = {}
    if words[:2] == ["server", "start"]:
        own = server_env(places.state)
        env = {name: value for name, value in own.items() if not os.environ.get(name)}
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--port")
        if port := parser.parse_known_args(words)[0].port:
            env[SERVER_PORT] = port  # the server's page ignores the option
    elif words[:1] != ["server"] and not places.api:
        # the server of another program must not get the command's data
        env["PREFECT_API_URL"] = f"http://127.0.0.1:{free_port(PORT)}/api"
    Program("prefect", [*PREFECT, *words], env).become()


def open_flow_run(places: Places, flow_run: str) -> None:
    """Print a flow run's address in the Prefect UI.

    If no server is running, this process becomes the server.
    """
    port = free_port(PORT)
    print(flow_run_page(places.api or f"http://127.0.0.1:{port}/api", flow_run), flush=True)
    if not places.api:
        print(f"Sign in with {USER}:{shown(places.state)}", flush=True)
        prefect_server(places.state, port).become()


def flow_run_page(api: str, flow_run: str) -> str:
    """Return a flow run's address in the Prefect UI. If `api` is empty, use the default port."""
    return f"{api.removesuffix('/api') or f'http://127.0.0.1:{PORT}'}/runs/flow-run/{flow_run}"
