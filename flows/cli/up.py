"""The commands that start, show and end a project's servers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from agentfly_core.config import loading
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.own_servers import require_free
from flows.local.state_dirs import settle
from flows.up.serving import GRACE, serve
from flows.up.status import LOG, keeper, only_one, show_status
from flows.up.unit import at_boot

NOTHING = "Nothing of `agentfly up` runs here ({})."


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
    if status and not keeper(places.state):
        print(NOTHING.format(places.state))
        return 1
    if status:
        return show_status(place)
    places.state.chmod(0o700)
    with only_one(places.state):  # until the process that serves has it
        if places.api:
            raise ValueError(
                f"Prefect is elsewhere: {places.prefect}. End or unset it, or deploy there: "
                "python -m flows.deploy; agentfly prefect worker start --pool agentfly"
            )
        require_free(prefect_port, "Prefect's server", "--prefect-port")
        if not place.served:
            require_free(mlflow_port, "MLflow's server", "--mlflow-port")
    with suppress(FileNotFoundError):
        (places.state / LOG).replace(places.state / f"{LOG}.1")
    return _detached(place, ports) if detach else _serve(place, ports)


def down() -> None:
    """End what `agentfly up` started.

    For example `agentfly down`.
    """
    state = settle(Path.cwd()).state
    if not (pid := keeper(state)):
        print(NOTHING.format(state))
        return
    with suppress(ProcessLookupError):
        process = os.pidfd_open(pid)
        if keeper(state) == pid:  # now `process` cannot mean another program
            signal.pidfd_send_signal(process, signal.SIGTERM)
    print(f"Ending process {pid}; its flow runs have two minutes to end.", flush=True)
    deadline = time.monotonic() + GRACE + 60
    while keeper(state) == pid:
        if time.monotonic() > deadline:
            raise ValueError(f"Process {pid} does not end. End it with: kill -9 {pid}")
        time.sleep(0.1)
    print("Ended.")


def _serve(
    place: MlflowStore, ports: tuple[int, int], then: Callable[[], object] = lambda: None
) -> int:
    """Serve until SIGINT or SIGTERM; calls `then` once all works."""
    for number in (signal.SIGINT, signal.SIGTERM):  # a shell's & ignores the first one
        signal.signal(number, signal.default_int_handler)

    def ready() -> None:
        show_status(place)
        print("\n".join(at_boot(Path.cwd(), ports)), flush=True)
        then()

    try:
        with only_one(place.state):
            serve(place, ports, ready)
    except KeyboardInterrupt:
        print("Ended.")
    return 0


def _detached(place: MlflowStore, ports: tuple[int, int]) -> int:
    """Serve in another process; returns once all works, or raises ValueError with its log."""
    reading, writing = os.pipe()
    log = place.state / LOG
    if os.fork():
        os.close(writing)
        if os.read(reading, 1):
            return show_status(place)
        lines = log.read_text(errors="replace").strip().splitlines()[-20:]
        raise ValueError("\n  ".join(["It did not start. Its log:", *lines]))
    os.setsid()
    for number, output in enumerate((Path(os.devnull), log, log)):
        os.dup2(os.open(output, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), number)
    return _serve(place, ports, lambda: os.write(writing, b"1"))
