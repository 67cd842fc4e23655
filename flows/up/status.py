"""Which process serves a project, and whether its servers and its worker work."""

from __future__ import annotations

import fcntl
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from agentfly_core.system.formats.text import redact
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.mlflow_ui import serving
from flows.local.own_servers import USER, own_api, shown
from flows.local.prefect_server import PATIENCE, POOL, WORKER, answers

LOG, LOCK = "logs/up.log", "up.lock"
FLOCK = "hhqqi"
"""The struct flock of fcntl(2): type, whence, start, length, pid."""
SILENCE = timedelta(seconds=100)
"""A worker gives a sign of life every 30 s."""


@contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Hold the project's lock; raises ValueError while another process has it."""
    with (state / LOCK).open("a") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ValueError(
                "`agentfly up` runs in this folder already; see agentfly up --status, agentfly down"
            ) from None
        yield


def keeper(state: Path) -> int:
    """The id of the other process that holds the project's lock; 0 without one."""
    with (state / LOCK).open("a") as lock:
        query = struct.pack(FLOCK, fcntl.F_WRLCK, 0, 0, 0, 0)
        kind, *_, pid = struct.unpack(FLOCK, fcntl.fcntl(lock, fcntl.F_GETLK, query))
    return 0 if kind == fcntl.F_UNLCK else int(pid)


class Health(NamedTuple):
    """What works: `Health(True, True, True, ["evaluate", "nightly", "prepare", "train"])`."""

    prefect: bool
    mlflow: bool
    worker: bool
    deployments: list[str]


def look(api: Mapping[str, str], mlflow: str, since: datetime | None = None) -> Health:
    """Ask the servers; `own_api` gives `api`.

    The worker needs a sign of life after `since`, by default in the last 100 s.
    """
    workers = _listed(api, f"/work_pools/{POOL}/workers/filter")
    since = since or datetime.now(UTC) - SILENCE
    signs = [each["last_heartbeat_time"] for each in workers if each["name"] == WORKER]
    return Health(
        answers(api.get("PREFECT_API_URL", "")),
        mlflow_answers(mlflow),
        any(sign and datetime.fromisoformat(sign) > since for sign in signs),
        sorted(each["name"] for each in _listed(api, "/deployments/filter")),
    )


def mlflow_answers(url: str) -> bool:
    """Whether MLflow answers at a URL; True for Databricks, which is not asked."""
    return answers(url) if url.startswith("http") else bool(url)


def _listed(api: Mapping[str, str], path: str) -> list[dict[str, Any]]:
    """Entries of a Prefect API; empty while it is busy, or not there."""
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
    """Print addresses and health; returns 0 if everything works, otherwise 1."""
    api, mlflow, password = own_api(place.state), serving(place), shown(place.state)
    prefect = api.get("PREFECT_API_URL", "no server").removesuffix("/api")
    health, words = look(api, mlflow), {True: "works", False: "DOES NOT WORK"}
    print(f"Prefect  {prefect}   sign in with {USER}:{password}")
    if place.served:
        print(f"MLflow   {redact(mlflow)}")
    else:
        print(f"MLflow   {mlflow or 'no server'}   sign in as {USER} with {password}")
    print(f"Log      {place.state / LOG}\nTo end it: agentfly down, or Ctrl-C where it runs.")
    print(f"Prefect {words[health.prefect]}, MLflow {words[health.mlflow]}, the worker", end=" ")
    print(f"{words[health.worker]}; deployed: {', '.join(health.deployments) or 'nothing'}.")
    return 0 if all(health) else 1
