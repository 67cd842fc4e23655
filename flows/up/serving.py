"""Start a project's servers and worker, deploy, and keep all of it alive."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

import psutil

from agentfly_core.config import loading
from agentfly_core.system.formats.text import redact
from agentfly_core.system.module_search import finding_ours
from agentfly_core.system.service import LONGEST, Service, ServiceLost, new_address, supervised
from agentfly_core.system.supervisor import ChildState
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.mlflow_ui import mlflow_server
from flows.local.own_servers import Program, own_api
from flows.local.prefect_server import answers, prefect_server, worker
from flows.up.status import LOG, look

GRACE = 120.0
"""Seconds that a flow run may take to end."""
TRIES, RESTARTS = 4, 100
"""How often a program is started until it works for the first time, and started again in all."""
LOOK_SECONDS = 5.0
LARGEST_LOG = 10_000_000


def serve(place: MlflowStore, ports: tuple[int, int], ready: Callable[[], None]) -> NoReturn:
    """Serve Prefect and MLflow at two ports until interrupted; calls `ready` once all works.

    At the end flow runs have GRACE seconds for open writes, then all programs end. Raises
    ServiceLost for a program that does not start, or that died more than RESTARTS times.
    """
    begin, state, log = datetime.now(UTC), place.state, place.state / LOG
    api = f"http://127.0.0.1:{ports[0]}/api"
    mlflow = place.uri if place.served else f"http://127.0.0.1:{ports[1]}"
    with ExitStack() as stack:
        services = [_start(prefect_server(state, ports[0]), log, stack)]
        if not place.served:
            services += [_start(mlflow_server(place, ports[1]), log, stack)]
        # the password is for the project's own server, not for another program on its port
        _wait(services, lambda: answers(api) and bool(own_api(state)), f"Prefect at {api}")
        services += [_start(worker(own_api(state)), log, stack)]
        stack.callback(end_flow_runs, services[-1])
        deployed = _deployable()
        if fault := _deploy(log):
            raise ValueError(fault)
        what = f"The worker, or MLflow at {redact(mlflow)},"
        _wait(services, lambda: all(look(own_api(state), mlflow, begin)), what)
        ready()
        _keep(services, place, deployed)


def _start(program: Program, log: Path, stack: ExitStack) -> Service:
    address = new_address(program.kind)
    return stack.enter_context(
        supervised(program.kind, program.command, program.env, address, log, "", RESTARTS)
    )


def _wait(services: list[Service], ready: Callable[[], bool], what: str) -> None:
    """Wait until `what` is ready.

    Raises ServiceLost after LONGEST seconds, or for a program that died TRIES times.
    """
    deadline = time.monotonic() + LONGEST
    while not ready():
        for service in services:
            child = ChildState.read(service.address)
            if not child or child.starts > TRIES:
                raise service.lost("does not start")
        if time.monotonic() > deadline:
            raise ServiceLost(f"{what} was not ready after {LONGEST:g} s. See .agentfly/{LOG}.")
        time.sleep(0.3)


def _keep(services: list[Service], place: MlflowStore, deployed: list[object]) -> NoReturn:
    """Deploy again after each change; raises ServiceLost for a program that stays dead."""
    printed, log = "", place.state / LOG
    while True:
        time.sleep(LOOK_SECONDS)
        _shorten(log)
        for service in services:
            if lost := service.fault():
                raise service.lost(lost)
        if deployed != (files := _deployable()) and own_api(place.state):
            if not (fault := _deploy(log)):
                deployed = files
            elif fault != printed:
                print(f"The deployments stay as they are. {fault}", flush=True)
            printed = fault


def _shorten(log: Path) -> None:
    """Move the text of a log larger than LARGEST_LOG bytes to another file."""
    if log.is_file() and log.stat().st_size > LARGEST_LOG:
        shutil.copy(log, f"{log}.1")
        os.truncate(log, 0)  # all programs append


def _deployable() -> list[object]:
    """Inputs of the deployments: time of prefect.yaml, names of experiments and sites."""
    path = Path("prefect.yaml")
    changed = path.stat().st_mtime_ns if path.is_file() else None
    return [changed, loading.names(), loading.names(loading.CONF / "site")]


def _deploy(log: Path) -> str:
    """Deploy in another process; returns the end of its output if that fails."""
    command, env = [sys.executable, "-P", "-m", "flows.deploy"], {**os.environ, **finding_ours()}
    with log.open("a+") as output:
        start = output.tell()
        if not subprocess.run(command, env=env, stdout=output, stderr=output).returncode:
            return ""
        output.seek(start)
        return "\n  ".join(["Deploying failed:", *output.read().strip().splitlines()[-10:]])


def end_flow_runs(service: Service) -> None:
    """Ask the worker's flow runs to end, and wait until they have, for at most GRACE seconds."""
    state = ChildState.read(service.address)
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(state.keeper).children() if state else []
        flow_runs = [child for program in started for child in program.children()]
        for flow_run in flow_runs:
            with suppress(psutil.NoSuchProcess):
                flow_run.terminate()
        psutil.wait_procs(flow_runs, GRACE)
