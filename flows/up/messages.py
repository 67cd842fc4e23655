"""Messages of `agentfly up`: addresses, sign-in, and start at each boot."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from flows.local.ports import own
from flows.local.servers import Servers
from flows.local.sign_in import SignIn
from flows.up.health import Health, look, mlflow_answers
from flows.up.log import LOG
from flows.up.unit import at_boot
from flows.up.versions import Installed
from flows.up.wanted import Wanted


def ready(project: Path, wanted: Wanted, servers: Servers, sign_in: SignIn) -> None:
    """Print that all works, and how it starts at each boot."""
    lines = served(servers, sign_in, wanted.places.state)
    print("\n".join([*lines, *at_boot(project, wanted.options)]), flush=True)


def served(servers: Servers, sign_in: SignIn, state: Path) -> list[str]:
    """Where the servers are, how to sign in, and where their log is."""
    shown = sign_in.shown(state)
    return [
        f"Prefect  {servers.prefect}   sign in with {sign_in.name}:{shown}",
        f"MLflow   {servers.mlflow}   sign in as {sign_in.name} with {shown}",
        f"Log      {state / LOG}",
        "To end it: agentfly down, or Ctrl-C where it runs.",
    ]


def status(state: Path) -> int:
    """Print what runs; returns 0 where all of it works, otherwise 1."""
    if not (servers := Servers.running(state)):
        print(f"Nothing of `agentfly up` runs here ({state}).")
        return 1
    if not servers.ready:
        print(f"It is starting ({servers.owner}); its log: {state / LOG}")
        return 1
    sign_in = SignIn.of(state)
    is_ours = urlsplit(servers.prefect).port in own("prefect", state)
    health = (
        look(servers, sign_in) if is_ours else Health(False, mlflow_answers(servers), False, ())
    )
    print("\n".join(served(servers, sign_in, state)))
    works = {True: "works", False: "DOES NOT WORK"}
    print(f"Prefect {works[health.prefect]}, MLflow {works[health.mlflow]}, the worker", end=" ")
    print(f"{works[health.worker]}; deployed: {', '.join(health.deployments) or 'nothing'}.")
    print(f"It is version {servers.version} ({servers.owner}).")
    if (installed := Installed.now().version) != servers.version:
        print(f"Version {installed} is installed: it starts anew once no flow run is at work.")
    for fault in servers.faults:
        print(f"Its {fault}: all of it starts anew once no flow run is at work.")
    return 0 if health.good and not servers.faults else 1
