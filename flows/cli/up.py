"""The servers of a project: started, looked at and ended, by one command each."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentfly_core.config import loading
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.ports import require_free
from flows.local.servers import Servers
from flows.local.state_dirs import Places, settle
from flows.up import messages
from flows.up.serving import serve
from flows.up.unit import ALIKE
from flows.up.versions import require_matching
from flows.up.wanted import Wanted
from flows.up.worker import GRACE

END_SECONDS = GRACE + 60.0


def up(
    *,
    detach: bool = False,
    status: bool = False,
    prefect_port: int = 4200,
    mlflow_port: int = 5000,
) -> int:
    """Serve Prefect and MLflow, and run what is triggered.

    For example `agentfly up --detach`.

    Args:
        detach: return once all works, and keep it running
        status: print what runs; exits with 0 if all works
    """
    before = dict(os.environ)  # what a new start is to find, nothing of which was chosen here
    places = settle(Path.cwd())
    if status:
        return messages.status(places.state)
    places.state.chmod(0o700)
    with _only_one(places.state):
        wanted = _wanted(places, prefect_port, mlflow_port)
    if detach:
        return _detached(wanted, before)
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's & has the first one ignored
        signal.signal(number, signal.default_int_handler)
    try:
        with _only_one(places.state):
            why = serve(wanted, lambda *served: messages.ready(Path.cwd(), wanted, *served))
    except KeyboardInterrupt:
        print("Ended.")
        return 0
    print(f"Starting anew: {why}.", flush=True)
    os.execve(sys.executable, [*ALIKE, *wanted.options], before)


def down() -> None:
    """End what `agentfly up` started.

    For example `agentfly down`.
    """
    state = settle(Path.cwd()).state
    if not (servers := Servers.running(state)):
        print(f"Nothing of `agentfly up` runs here ({state}).")
        return
    os.kill(servers.owner.pid, signal.SIGTERM)
    end = time.monotonic() + END_SECONDS
    while servers.owner.alive:
        if time.monotonic() > end:
            raise ValueError(
                f"The process {servers.owner.pid} does not end. End it, and what it started, with: "
                f"kill -9 {servers.owner.pid}"
            )
        time.sleep(0.1)
    print("Ended.")


def _wanted(places: Places, prefect_port: int, mlflow_port: int) -> Wanted:
    """The servers to start; raises ValueError for known problems."""
    require_matching()
    if places.api:
        raise ValueError(
            f"Prefect is elsewhere: {places.prefect}. `agentfly up` starts one of its own; unset "
            "that, or deploy there with `python -m flows.deploy`, and start a worker with "
            "`agentfly prefect worker start --pool agentfly`."
        )
    mlflow = MlflowStore.choose(places.state, loading.site("local").mlflow_tracking_uri)
    wanted = Wanted(places, mlflow, prefect_port, mlflow_port)
    require_free(wanted.prefect_port, "Prefect's server", "--prefect-port")
    if not mlflow.served:
        require_free(wanted.mlflow_port, "MLflow's server", "--mlflow-port")
    return wanted


def _detached(wanted: Wanted, environment: dict[str, str]) -> int:
    """Start another process that serves; returns once it does, or raises ValueError with what it
    said.
    """
    with wanted.log.open("a") as output:
        began = output.tell()
        process = subprocess.Popen(
            [*ALIKE, *wanted.options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    while not (servers := Servers.running(wanted.places.state)) or not servers.ready:
        if process.poll() is not None:
            written = wanted.log.read_bytes()[began:].decode(errors="replace")
            lines = written.strip().splitlines()[-20:]
            raise ValueError("\n  ".join(["It did not start. It said:", *lines]))
        time.sleep(0.1)
    return messages.status(wanted.places.state)


@contextmanager
def _only_one(state: Path) -> Iterator[None]:
    """Hold the project's lock; raises ValueError while another `agentfly up` has it."""
    with (state / "up.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                "`agentfly up` runs in this folder already. What it serves: agentfly up --status. "
                "To end it: agentfly down"
            ) from None
        yield
