"""The process of `agentfly up`: its beginning, here or detached, its end, and its systemd unit."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from agentfly_core.system.files import write_text
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.own_servers import free_port
from flows.local.serving import (
    GRACE,
    LOG,
    TO_END,
    Deployments,
    deployable,
    keep,
    keeper,
    only_one,
    show_status,
    start,
)
from flows.local.state_dirs import Places

SYSTEMD = Path("/run/systemd/system")
UNIT = Path(__file__).with_name("agentfly.service")


def require_startable(places: Places, ports: tuple[int, ...]) -> None:
    """Raise ValueError if the project is served, its Prefect is elsewhere, or a port is taken."""
    with only_one(places.state):  # until the process that serves has it
        if places.api:
            raise ValueError(
                f"Prefect is elsewhere: {places.prefect}. End or unset it, or deploy there: "
                "python -m flows.deploy; agentfly prefect worker start --pool agentfly"
            )
        for port in ports:
            if free_port(port) != port:
                raise ValueError(
                    f"Another program uses the port {port}. End it, or choose another port: "
                    "agentfly up --prefect-port PORT --mlflow-port PORT"
                )


def end(state: Path) -> bool:
    """End the process that serves a project, and wait for it; returns False without one."""
    if not (pid := keeper(state)):
        return False
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        if keeper(state) == pid:  # now `process` cannot mean another program
            signal.pidfd_send_signal(process, signal.SIGTERM)
    print(f"Ending process {pid}; its flow runs have two minutes to end.", flush=True)
    while keeper(state) == pid:
        time.sleep(0.1)
    return True


def serve(place: MlflowStore, ports: tuple[int, int]) -> int:
    """Serve until SIGINT or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's & ignores the first one
        signal.signal(number, signal.default_int_handler)
    try:
        with only_one(place.state), ExitStack() as stack:
            deployments = Deployments(place.state / LOG, deployable())
            services = start(place, ports, stack)
            if SYSTEMD.is_dir():
                path = shlex.quote(str(write_unit(Path.cwd(), ports)))
                print(f"At each boot: systemctl --user enable --now {path}")
            show_status(place)
            keep(services, deployments)
    except KeyboardInterrupt:
        print("Ended.")
    return 0


def detached(place: MlflowStore, ports: tuple[int, int]) -> int:
    """Serve in another process; returns once all works, or raises ValueError with its log."""
    log = place.state / LOG
    log.touch(0o600)
    if process := os.fork():
        while TO_END not in log.read_text(errors="replace"):
            if os.waitpid(process, os.WNOHANG)[0]:
                lines = log.read_text(errors="replace").strip().splitlines()[-20:]
                raise ValueError("\n  ".join(["It did not start. Its log:", *lines]))
            time.sleep(0.2)
        return show_status(place)
    os.setsid()
    for number, output in enumerate((Path(os.devnull), log, log)):
        os.dup2(os.open(output, os.O_RDWR | os.O_APPEND), number)
    return serve(place, ports)


def write_unit(project: Path, ports: tuple[int, int]) -> Path:
    """Write the unit by which systemd starts `agentfly up` at each boot; returns its path."""
    options = [f"--prefect-port={ports[0]}", f"--mlflow-port={ports[1]}"]
    command = [sys.executable, "-P", "-m", "flows", "up", *options]
    fields = {"project": str(project), "command": shlex.join(command)}
    escaped = {name: text.replace("%", "%%") for name, text in fields.items()}
    unit = UNIT.read_text().format(**escaped, stop=int(GRACE) + 60)
    name = f"agentfly-{hashlib.sha256(bytes(project)).hexdigest()[:8]}.service"
    path = project / ".agentfly" / name
    write_text(path, unit)
    return path
