"""A Prefect API for one process, its UI for people, and the tidying up after flow runs whose
process was killed.
"""

from __future__ import annotations

import argparse
import ipaddress
import logging
import os
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from uuid import UUID

import httpx

from agentfly_core.system.module_search import finding_ours
from agentfly_core.system.service import Service, new_address, supervised
from flows.local.ports import first_free, mark, own
from flows.local.sign_in import SignIn
from flows.local.state_dirs import Places
from flows.local.trust import trusted

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State

logger = logging.getLogger(__name__)
PATIENCE = httpx.Timeout(60.0, connect=5.0)
POOL = "agentfly"
"""The work pool of all deployments."""
PORTS = range(4200, 4220)
UI = f"http://127.0.0.1:{PORTS.start}"
"""Where `open_flow_run` serves the project's flow runs, unless the port is taken."""
CONTINUED = "Its process was killed; the run continued in another flow run."
GUARD = "PREFECT_SERVER_API_AUTH_STRING"
PAGE_API = "PREFECT_SERVER_UI_API_URL"
"""Where the page sends its requests: by default to port 4200, whatever the server's own port."""
BOOKKEEPING_ONLY = {
    f"PREFECT_SERVER_SERVICES_{name}_ENABLED": "false"
    for name in ("SCHEDULER", "LATE_RUNS", "FOREMAN", "TRIGGERS")
} | {"PREFECT_SERVER_UI_ENABLED": "false"}


@dataclass(frozen=True, slots=True)
class Api:
    """A Prefect API: `Api("http://127.0.0.1:35117/api", Service("prefect",
    "/tmp/agentfly-x1/prefect.sock"))`.

    `service` is None for one that AgentFly does not run.
    """

    url: str
    service: Service | None

    def wait(self) -> None:
        """Wait until it answers; raises ServiceLost with the end of its log when ours does not come
        up.
        """
        if self.service:
            self.service.wait(partial(answers, self.url))


@contextmanager
def prefect_api(places: Places) -> Iterator[Api]:
    """Give this process a Prefect API: the one that was chosen, or a server of its own on the
    project's database.

    Returns at once, so that the 4 seconds that a server takes (9 on a new database) go by while
    other things are imported; wait for it before the first flow. The server dies with this process.
    Where the chosen API does not answer, such a server is used too.
    """
    if places.api and answers(places.api):
        yield Api(places.api, None)
        return
    if places.api:
        logger.warning(
            "%s does not answer: this command has a Prefect server of its own.", places.prefect
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    address, log = new_address("prefect"), places.state / "logs" / "prefect.log"
    guard = os.environ.get(GUARD) or SignIn.of(places.state).basic
    env = BOOKKEEPING_ONLY | {GUARD: guard}
    with supervised("prefect", command, env, address, log, "") as service:
        use(url, guard)
        try:
            yield Api(url, service)
        finally:
            deliver()


def use(url: str, auth: str = "") -> None:
    """Let this process and its children talk to a Prefect API, whether prefect was imported already
    or not.

    `auth` is the NAME:PASSWORD of a server that does not take that of the environment.
    """
    os.environ["PREFECT_API_URL"] = url
    if auth:
        os.environ["PREFECT_API_AUTH_STRING"] = auth
    if "prefect" in sys.modules:
        from prefect.context import refresh_global_settings_context

        refresh_global_settings_context()


def deliver() -> None:
    """Send the states and log lines that Prefect still holds back, before its server goes; gives up
    after seconds.
    """
    if "prefect" in sys.modules:
        from prefect.events.worker import EventsWorker
        from prefect.logging.handlers import APILogHandler

        EventsWorker.drain_all(timeout=5)
        APILogHandler().flush()


def leave(code: int) -> NoReturn:
    """End this process; what Prefect still holds back for a server that is gone would take it
    minutes to give up.
    """
    if "prefect" in sys.modules and not answers(os.environ.get("PREFECT_API_URL", "")):
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
    sys.exit(code)


def answers(url: str) -> bool:
    """Whether a Prefect API is there; a busy one takes its time to answer."""
    try:
        return httpx.get(f"{url}/health", timeout=PATIENCE, verify=trusted()).status_code < 500
    except httpx.TransportError:
        return False


def crash_abandoned(flow_runs: Iterable[str], message: str = CONTINUED) -> list[str]:
    """Mark flow runs that a killed process left running as Crashed; returns their ids.

    Only for flow runs whose process is known to be dead. Ids of another Prefect database are passed
    over.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound
    from prefect.states import Crashed

    crashed = []
    with get_client(sync_client=True) as client:
        for flow_run in flow_runs:
            try:
                state = client.read_flow_run(UUID(flow_run)).state
            except ObjectNotFound:
                continue
            if state is None:
                continue
            # a suspended flow run has no process in which it waits
            waits = state.is_paused() and not state.state_details.pause_reschedule
            if waits or state.is_running() or state.is_cancelling():
                ended: State[None] = Crashed(message=message)
                client.set_flow_run_state(UUID(flow_run), ended, force=True)
                crashed.append(flow_run)
    return crashed


def prefect_command(places: Places, words: Sequence[str]) -> NoReturn:
    """Become `prefect WORDS...` on the project's state; other commands than `server` talk to the
    project's own server.

    Raises ValueError for a server that others could reach without a password.
    """
    env = {**os.environ, **finding_ours()}
    if words[:2] == ["server", "start"]:
        env |= _server_environment(places.state, words)
    elif words[:1] != ["server"] and not places.api:
        env |= own_api(places.state) or {"PREFECT_API_URL": f"{_free_page()}/api"}
    os.execve(sys.executable, [sys.executable, "-m", "prefect", *words], env)


def own_api(state: Path) -> dict[str, str]:
    """The environment variables of clients of the project's own Prefect server; none without it."""
    for port, environment in own("prefect", state).items():
        url, auth = f"http://127.0.0.1:{port}/api", environment[GUARD]
        return {"PREFECT_API_URL": url, "PREFECT_API_AUTH_STRING": auth}
    return {}


def reach(places: Places) -> str:
    """Let this process talk to the chosen Prefect API, or else to the project's own server.

    Returns the API's URL, empty where neither is there.
    """
    api = own_api(places.state) if not places.api else {"PREFECT_API_URL": places.api}
    if api:
        use(*api.values())
    return api.get("PREFECT_API_URL", "")


def open_flow_run(places: Places, flow_run: str) -> None:
    """Print a flow run's address in the Prefect UI, and become the server of that UI if none of
    this project is running.
    """
    if places.api or own_api(places.state):
        print(flow_run_page(places, flow_run), flush=True)
        return
    url = _free_page()
    print(f"{url}/runs/flow-run/{flow_run}")
    if not os.environ.get(GUARD):
        sign_in = SignIn.of(places.state)
        print(f"Sign in with {sign_in.name}:{sign_in.shown(places.state)}", flush=True)
    port = url.rpartition(":")[2]
    prefect_command(places, ["server", "start", "--host", "127.0.0.1", "--port", port])


def flow_run_page(places: Places, flow_run: str) -> str:
    """A flow run's address in the Prefect UI."""
    api = places.api or own_api(places.state).get("PREFECT_API_URL", UI)
    return f"{api.removesuffix('/api')}/runs/flow-run/{flow_run}"


def _free_page() -> str:
    port = first_free(PORTS, "Prefect's UI")
    return f"http://127.0.0.1:{port}"


def _server_environment(state: Path, words: Sequence[str]) -> dict[str, str]:
    """The environment variables of `server start WORDS...`: the project's password unless another
    is set, and the API's URL for its page.
    """
    from prefect.settings import Settings

    settings = Settings().server
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--host", default=settings.api.host)
    parser.add_argument("--port", default=settings.api.port)
    place = parser.parse_known_args(words)[0]
    chosen = settings.api.auth_string
    if not chosen:
        _require_loopback(place.host)
    guard = chosen.get_secret_value() if chosen else SignIn.of(state).basic
    page = {} if "api_url" in settings.ui.model_fields_set else {PAGE_API: _api_at(place)}
    return {GUARD: guard, **page, **mark("prefect", state)}


def _api_at(place: argparse.Namespace) -> str:
    return f"http://{f'[{place.host}]' if ':' in place.host else place.host}:{place.port}/api"


def _require_loopback(host: str) -> None:
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_loopback = host == "localhost"
    if not is_loopback:
        raise ValueError(
            f"Got the Prefect server's host {host!r}, expected 127.0.0.1: others could reach it "
            f"and run their code here. Set {GUARD} to 'NAME:PASSWORD' "
            "first, then start it again."
        )
