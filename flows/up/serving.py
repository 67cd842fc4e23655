"""What `agentfly up` does: it starts the servers, deploys, starts the worker, and keeps them until
it is ended.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from agentfly_core.system.service import Service, new_address, supervised
from flows.deploy import deploy, make_pool
from flows.local import programs
from flows.local.flow_run_owners import tidy
from flows.local.ports import own, taken
from flows.local.prefect_server import answers, deliver, use
from flows.local.servers import FILE, Servers
from flows.local.sign_in import SignIn
from flows.up.health import look
from flows.up.log import rotate
from flows.up.versions import Changes
from flows.up.wanted import Wanted
from flows.up.worker import end_flow_runs, flow_runs

LOOK_SECONDS = 5.0
OnReady = Callable[[Servers, SignIn], None]


def serve(wanted: Wanted, ready: OnReady) -> str:
    """Start all, call `ready` when it works, and keep it until it is to be started anew: what is
    installed has changed, or a program has died for good, and no flow run is at work. Returns why.

    However it is left, all that it has started is ended: flow runs first, which may finish what
    they are writing. Raises ServiceLost for what does not start.
    """
    state, changes, sign_in = wanted.places.state, Changes(), SignIn.of(wanted.places.state)
    with ExitStack() as stack:
        servers = wanted.servers()
        servers.write(state)
        stack.callback((state / FILE).unlink, missing_ok=True)
        services = _started(wanted, servers, sign_in, stack)
        servers = replace(servers, ready=True)
        servers.write(state)
        ready(servers, sign_in)
        while True:
            time.sleep(LOOK_SECONDS)
            rotate(wanted.log)
            checked = [(service.kind, service.fault()) for service in services]
            faults = tuple(f"{kind} {fault}" for kind, fault in checked if fault)
            if faults != servers.faults:
                servers = replace(servers, faults=faults)
                servers.write(state)
            version = changes.version()
            if (version or faults) and not flow_runs(services[-1]):
                return ", ".join(faults) or f"version {version} is installed"


def _started(wanted: Wanted, servers: Servers, sign_in: SignIn, stack: ExitStack) -> list[Service]:
    """The services, the worker last, once all of them work."""
    begin, log = datetime.now(UTC), wanted.log
    state = wanted.places.state
    prefect_server = _start(programs.prefect_server(servers.prefect, state, sign_in), log, stack)
    services = [prefect_server]
    if not wanted.mlflow.served:
        mlflow = programs.mlflow_server(servers.mlflow, wanted.mlflow, sign_in)
        services.append(_start(mlflow, log, stack))
    os.environ |= sign_in.prefect_client
    use(servers.api)
    stack.callback(deliver)
    import prefect.main  # noqa: F401  # takes seconds, as the servers do

    prefect_server.wait(partial(answers, servers.api))  # the rest needs it alone
    if wanted.prefect_port not in own("prefect", state):
        raise ValueError(taken(wanted.prefect_port, "Prefect's server", "--prefect-port"))
    tidy(replace(wanted.places, api=servers.api))
    make_pool()
    worker = _start(programs.worker(servers.api, sign_in), log, stack)
    stack.callback(end_flow_runs, worker)
    with log.open("a") as output:
        deploy(output)
    for service in (*services, worker):
        service.wait(lambda: look(servers, sign_in, begin).good)
    return [*services, worker]


def _start(program: programs.Program, log: Path, stack: ExitStack) -> Service:
    address = new_address(program.kind)
    running = supervised(program.kind, program.command, program.env, address, log, "")
    return stack.enter_context(running)
