"""The process of `agentfly up`.

The process starts a project's servers and worker, deploys the flows, restarts programs that die,
and prints their health. This module also starts the process (in the terminal or detached), ends it,
and writes its systemd unit.
"""

import fcntl
import hashlib
import json
import os
import select
import shlex
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from agentfly_core.config import loading
from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from agentfly_core.system.files import write_text
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import redact
from agentfly_core.system.module_search import finding_ours
from agentfly_core.system.process import Owner
from agentfly_core.system.service import Service, new_address, supervised
from agentfly_core.system.supervisor import ChildState
from flows.local.mlflow_ui import mlflow_server, serving
from flows.local.own_servers import USER, Program, free_port, own_api, shown
from flows.local.prefect_server import PATIENCE, POOL, WORKER, answers, prefect_server, worker
from flows.local.state_dirs import Places

SYSTEMD = Path("/run/systemd/system")
UNIT = Path(__file__).with_name("agentfly.service")
LOG, LOCK = "logs/up.log", "up.lock"
FLOCK = "hhqqi"
"""The format of the C struct flock of fcntl(2): type, whence, start, length, pid."""
GRACE = 120.0
"""Flow runs are killed, with their worker, if they still run GRACE seconds after SIGTERM."""
RESTARTS = 20
"""The largest number of restarts of a program that dies."""
LOOK_SECONDS = 5.0
TO_END = "To end it: agentfly down, or Ctrl-C in its terminal."


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the lock of the project's lock file during the `with` block.

    Only one `agentfly up` can therefore run per project. The identity of this process is written to
    the file. Raises ValueError if another process has the lock.
    """
    # "w" would erase the identity of the process that has the lock
    with (state / LOCK).open("a") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                "`agentfly up` runs in this folder already. To see its state: agentfly up "
                "--status. To end it: agentfly down"
            ) from None
        lock.truncate(0)
        lock.write(json.dumps(Owner.current().to_json()))
        lock.flush()
        yield


def keeper(state: Path) -> int:
    """Return the id of the process that holds the project's lock, or 0 if the lock is free.

    Raises ValueError if the lock file does not name the process that holds the lock. In this case
    the holder may be a program other than `agentfly up`, or a process on another machine that
    shares the folder.
    """
    path = state / LOCK
    with path.open("a") as lock:
        # this query returns the id of the process with the lock, which flock(2) cannot do
        query = struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        kind, *_, pid = struct.unpack(FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, query))
    if kind == fcntl.F_UNLCK:
        return 0
    with suppress(ValueError):
        owner = Owner.of(strict_json.parse(path.read_text()))
        if owner.pid == pid and owner.here and owner.alive:
            return int(pid)
    raise ValueError(
        f"Process {pid} holds the lock {path}, but it may not be `agentfly up`. "
        "Check which program it is, and end it yourself."
    )


def worker_answers(api: Mapping[str, str]) -> bool:
    """Whether the worker of `agentfly up` has sent a heartbeat to Prefect in the last 90 s."""
    workers = _listed(api, f"/work_pools/{POOL}/workers/filter")
    return any(each["name"] == WORKER and each["status"] == "ONLINE" for each in workers)


def _listed(api: Mapping[str, str], path: str) -> list[dict[str, Any]]:
    """Return the entries that a Prefect API lists at a path.

    The list is empty if the API is busy or not running.
    """
    if not api:
        return []
    name, _, secret = api["PREFECT_API_AUTH_STRING"].partition(":")
    url = api["PREFECT_API_URL"] + path
    try:
        answer = httpx.post(url, json={}, auth=(name, secret), timeout=PATIENCE, verify=False)
    except httpx.TransportError:
        return []
    entries: list[dict[str, Any]] = answer.json() if answer.is_success else []
    return entries


def show_status(place: MlflowStore) -> int:
    """Print whether the parts of `agentfly up` work: Prefect, MLflow, the worker and the
    deployments. Also print their addresses, how to sign in, and the path of the log.

    Return 0 if everything works, otherwise 1.
    """
    api, mlflow = own_api(place.state), serving(place)
    prefect = api.get("PREFECT_API_URL", "")
    deployments = sorted(each["name"] for each in _listed(api, "/deployments/filter"))
    works = {
        f"Prefect  {prefect.removesuffix('/api')}": answers(prefect),
        f"MLflow   {redact(mlflow)}": answers(mlflow) or mlflow.startswith("databricks"),
        "Worker  ": worker_answers(api),
        f"Deployed {', '.join(deployments)}": bool(deployments),
    }
    for line, health in works.items():
        print(line, "works" if health else "DOES NOT WORK")
    print(f"Sign in  {USER}:{shown(place.state)} (USER:PASSWORD; MLflow has a field for each)")
    print(f"Log      {place.state / LOG}\n{TO_END}", flush=True)
    return 0 if all(works.values()) else 1


def start(place: MlflowStore, ports: tuple[int, int], stack: ExitStack) -> list[Service]:
    """Start Prefect and MLflow at these two ports, start a worker, and deploy the flows.

    Wait until everything works, and return the services. When `stack` is closed, running flow runs
    get at most GRACE seconds to end, and then the services end. Raises ServiceLost if a program has
    died more than RESTARTS times.
    """
    state = place.state
    api, mlflow = f"http://127.0.0.1:{ports[0]}/api", f"http://127.0.0.1:{ports[1]}"

    def started(program: Program) -> Service:
        address, log = new_address(program.kind), state / LOG
        return stack.enter_context(
            supervised(program.kind, program.command, program.env, address, log, "", RESTARTS)
        )

    prefect = started(prefect_server(state, ports[0]))
    of_mlflow = [] if place.served else [started(mlflow_server(place, ports[1]))]
    # wait for the project's own server: another program on this port must not get the password
    prefect.wait(lambda: answers(api) and bool(own_api(state)))
    working = started(worker(own_api(state)))
    # the stack is closed in reverse order: flow runs end before the worker and the servers
    stack.callback(end_flow_runs, working)
    deploy(state / LOG)
    for service in of_mlflow:
        service.wait(lambda: answers(mlflow))
    working.wait(lambda: worker_answers(own_api(state)))
    return [prefect, *of_mlflow, working]


@dataclass
class Deployments:
    """Keeps the deployments of a project up to date: `Deployments(state / LOG, deployable())`.

    `inputs` is the result of `deployable` at the last attempt to deploy. `failures` counts the
    consecutive failed attempts. `looks` counts the calls of `renew` since the last attempt.
    """

    log: Path
    inputs: list[object]
    failures: int = 0
    looks: int = 0

    def renew(self) -> None:
        """Deploy the flows if the result of `deployable` has changed or the last attempt failed.

        After the first failure, the next call of `renew` tries again. With each further failure,
        the number of calls until the next attempt doubles, up to 64. These pauses save CPU time,
        because each attempt takes seconds.
        """
        before, self.inputs = self.inputs, deployable()
        self.looks += 1
        failures = self.failures if self.inputs == before else 0
        if self.inputs == before and (not failures or self.looks < 2 ** min(failures - 1, 6)):
            return
        self.looks = self.failures = 0
        try:
            deploy(self.log)
        except ValueError as refusal:
            self.failures = failures + 1
            print(f"The deployments were not updated. {refusal}", flush=True)


def deployable() -> list[object]:
    """Return values that show whether the flows must be deployed again.

    If the values have changed since the last deployment, the flows must be deployed again. The
    values are the modification time of prefect.yaml, and the names of the experiments, of their
    flows, and of the sites (settings of machines).
    """
    path = Path("prefect.yaml")
    changed = path.stat().st_mtime_ns if path.is_file() else None
    return [changed, loading.names(), loading.flows(), loading.names(loading.CONF / "site")]


def deploy(log: Path) -> None:
    """Deploy the flows in a child process, and append its output to a log file.

    Raises ValueError if the deployment fails. The message contains the last lines of the output.
    """
    command, env = [sys.executable, "-P", "-m", "flows.deploy"], {**os.environ, **finding_ours()}
    done = subprocess.run(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    with log.open("ab") as output:
        output.write(done.stdout)
    if done.returncode:
        lines = done.stdout.decode(errors="replace").strip().splitlines()[-10:]
        raise ValueError("\n  ".join(["Deploying failed:", *lines]))


def end_flow_runs(service: Service) -> None:
    """Send SIGTERM to the flow runs of the worker `service`.

    Wait at most GRACE seconds for their end.
    """
    state = ChildState.read(service.address)
    with suppress(psutil.NoSuchProcess):
        started = psutil.Process(state.keeper).children() if state else []
        # the supervisor starts the worker, and the worker starts the flow runs
        flow_runs = [child for program in started for child in program.children()]
        for flow_run in flow_runs:
            with suppress(psutil.NoSuchProcess):
                flow_run.terminate()
        psutil.wait_procs(flow_runs, GRACE)


def require_startable(places: Places, ports: tuple[int, ...]) -> None:
    """Check that `agentfly up` can start.

    Raises ValueError if `agentfly up` already runs for this project, if PREFECT_API_URL is
    set (in the environment or in Prefect's profile), or if another program uses one of the ports.
    """
    with only_one(places.state):  # this raises an error if `agentfly up` already runs
        if places.api:
            raise ValueError(
                f"This project uses the Prefect server {places.prefect}, so `agentfly up` starts "
                "no other server. To start a server for this project only, unset PREFECT_API_URL "
                f"(in the environment or in Prefect's profile). To use {places.prefect}, run "
                "`python -m flows.deploy` and then `agentfly prefect worker start --pool agentfly`."
            )
        for port in ports:
            if free_port(port) != port:
                raise ValueError(
                    f"Another program uses the port {port}. End that program, or choose another "
                    "port: agentfly up --prefect-port PORT --mlflow-port PORT"
                )


def end(state: Path) -> bool:
    """End the process of `agentfly up` for a project, and wait until it has ended.

    Returns False if `agentfly up` does not run for this project.
    """
    if not (pid := keeper(state)):
        return False
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        if keeper(state) == pid:  # otherwise `process` could be a new program with the same id
            signal.pidfd_send_signal(process, signal.SIGTERM)
            print(
                f"Ending `agentfly up` (process {pid}). Its flow runs have two minutes to end.",
                flush=True,
            )
            # the descriptor becomes readable once the process has ended
            select.select([process], [], [])
    return True


def serve(place: MlflowStore, ports: tuple[int, int]) -> int:
    """Run Prefect, MLflow and the worker until SIGINT or SIGTERM. Return the exit status.

    Raises ServiceLost if a program dies and cannot be restarted.
    """
    # by default, a process that a shell starts in the background (&) ignores SIGINT
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with only_one(place.state), ExitStack() as stack:
            deployments = Deployments(place.state / LOG, deployable())
            services = start(place, ports, stack)
            if SYSTEMD.is_dir():
                path = shlex.quote(str(write_unit(Path.cwd(), ports)))
                print(f"To run `agentfly up` at each boot: systemctl --user enable --now {path}")
            show_status(place)
            while True:
                time.sleep(LOOK_SECONDS)
                for service in services:
                    if fault := service.fault():
                        raise service.lost(fault)
                deployments.renew()
    except KeyboardInterrupt:
        print("Ended.")
    return 0


def detached(place: MlflowStore, ports: tuple[int, int]) -> int:
    """Fork a background process that runs `serve` and survives the end of the terminal.

    The calling process waits until the background process has started all programs. Then it prints
    their status, and returns 0 if everything works, otherwise 1. Raises ValueError if the
    background process ends earlier. The message has the last lines of the log. The background
    process returns the exit status of `serve`.
    """
    log = place.state / LOG
    log.touch(0o600)
    if process := os.fork():
        while TO_END not in log.read_text(errors="replace"):
            if os.waitpid(process, os.WNOHANG)[0]:
                lines = log.read_text(errors="replace").strip().splitlines()[-20:]
                raise ValueError("\n  ".join(["`agentfly up` did not start. Its log:", *lines]))
            time.sleep(0.2)
        return show_status(place)
    # the process must survive the end of the terminal
    os.setsid()
    for number, output in enumerate((Path(os.devnull), log, log)):
        os.dup2(os.open(output, os.O_RDWR | os.O_APPEND), number)
    return serve(place, ports)


def write_unit(project: Path, ports: tuple[int, int]) -> Path:
    """Write a systemd unit that starts `agentfly up` at each boot. Return the path of its file."""
    options = [f"--prefect-port={ports[0]}", f"--mlflow-port={ports[1]}"]
    command = [sys.executable, "-P", "-m", "flows", "up", *options]
    fields = {"project": str(project), "command": shlex.join(command)}
    escaped = {name: text.replace("%", "%%") for name, text in fields.items()}
    unit = UNIT.read_text().format(**escaped, stop=int(GRACE) + 60)
    name = f"agentfly-{hashlib.sha256(bytes(project)).hexdigest()[:8]}.service"
    path = project / ".agentfly" / name
    write_text(path, unit)
    return path
