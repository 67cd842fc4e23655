"""The commands that start, show and end a project's servers."""

from __future__ import annotations

import hashlib
import os
import shlex
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path

from agentfly_core.config import loading
from agentfly_core.system.files import write_text
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local import serving
from flows.local.own_servers import free_port
from flows.local.serving import LOG, TO_END, keeper, only_one, show_status
from flows.local.state_dirs import settle

SYSTEMD = Path("/run/systemd/system")
UNIT = Path(__file__).parents[1] / "local/agentfly.service"


def up(
    *,
    detach: bool = False,
    status: bool = False,
    prefect_port: int = 4200,
    mlflow_port: int = 5000,
) -> int:
    """Serve Prefect and MLflow, and run triggered flows.

    For example `agentfly up --detach`.

    Args:
        detach: return once all works, and keep it running
        status: print what runs; exits with 0 if all works
    """
    places, ports = settle(Path.cwd()), (prefect_port, mlflow_port)
    place = MlflowStore.choose(places.state, loading.site("local").mlflow_tracking_uri)
    if status:
        return show_status(place)
    places.state.chmod(0o700)
    with only_one(places.state):  # until the process that serves has it
        if places.api:
            raise ValueError(
                f"Prefect is elsewhere: {places.prefect}. End or unset it, or deploy there: "
                "python -m flows.deploy; agentfly prefect worker start --pool agentfly"
            )
        for port in ports[:1] if place.served else ports:
            if free_port(port) != port:
                raise ValueError(
                    f"Another program uses the port {port}. End it, or choose another port: "
                    "agentfly up --prefect-port PORT --mlflow-port PORT"
                )
    with suppress(FileNotFoundError):
        (places.state / LOG).replace(places.state / f"{LOG}.1")
    return _detached(place, ports) if detach else _serve(place, ports)


def down() -> None:
    """End what `agentfly up` started.

    For example `agentfly down`.
    """
    state = settle(Path.cwd()).state
    if not (pid := keeper(state)):
        print(f"Nothing of `agentfly up` runs here ({state}).")
        return
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        if keeper(state) == pid:  # now `process` cannot mean another program
            signal.pidfd_send_signal(process, signal.SIGTERM)
    print(f"Ending process {pid}; its flow runs have two minutes to end.", flush=True)
    while keeper(state) == pid:
        time.sleep(0.1)
    print("Ended.")


def _serve(place: MlflowStore, ports: tuple[int, int]) -> int:
    """Serve until SIGINT or SIGTERM."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's & ignores the first one
        signal.signal(number, signal.default_int_handler)
    try:
        with only_one(place.state), ExitStack() as stack:
            deployments = serving.Deployments(place.state / LOG, serving.deployable())
            services = serving.start(place, ports, stack)
            if SYSTEMD.is_dir():
                path = shlex.quote(str(write_unit(Path.cwd(), ports)))
                print(f"At each boot: systemctl --user enable --now {path}")
            show_status(place)
            serving.keep(services, deployments)
    except KeyboardInterrupt:
        print("Ended.")
    return 0


def _detached(place: MlflowStore, ports: tuple[int, int]) -> int:
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
    return _serve(place, ports)


def write_unit(project: Path, ports: tuple[int, int]) -> Path:
    """Write the unit by which systemd starts `agentfly up` at each boot; returns its path."""
    options = [f"--prefect-port={ports[0]}", f"--mlflow-port={ports[1]}"]
    command = [sys.executable, "-P", "-m", "flows", "up", *options]
    fields = {"project": str(project), "command": shlex.join(command)}
    escaped = {name: text.replace("%", "%%") for name, text in fields.items()}
    unit = UNIT.read_text().format(**escaped, stop=int(serving.GRACE) + 60)
    name = f"agentfly-{hashlib.sha256(bytes(project)).hexdigest()[:8]}.service"
    path = project / ".agentfly" / name
    write_text(path, unit)
    return path
