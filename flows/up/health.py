"""Whether what `agentfly up` started works, as it answers itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import httpx

from flows.local.prefect_server import PATIENCE, POOL
from flows.local.programs import WORKER
from flows.local.servers import Servers
from flows.local.sign_in import SignIn
from flows.local.trust import trusted

SILENCE = timedelta(seconds=100)
"""A worker gives a sign of life every 30 s."""


@dataclass(frozen=True, slots=True)
class Health:
    """What answers: `Health(True, True, True, ("evaluate", "nightly", "prepare", "train"))`."""

    prefect: bool
    mlflow: bool
    worker: bool
    deployments: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether a run can be triggered, and looked at."""
        return self.prefect and self.mlflow and self.worker and bool(self.deployments)


def look(servers: Servers, sign_in: SignIn, since: datetime | None = None) -> Health:
    """Ask the servers; a worker counts that has given a sign of life after `since`, or lately."""
    mlflow = mlflow_answers(servers)
    auth = (sign_in.name, sign_in.password)
    with httpx.Client(
        base_url=servers.api, auth=auth, timeout=PATIENCE, verify=trusted()
    ) as client:
        if not _answers(f"{servers.api}/health"):
            return Health(False, mlflow, False, ())
        workers = _listed(client, f"/work_pools/{POOL}/workers/filter")
        deployments = _listed(client, "/deployments/filter")
    signs = [
        datetime.fromisoformat(str(worker["last_heartbeat_time"]))
        for worker in workers
        if worker["name"] == WORKER
        and worker["status"] == "ONLINE"
        and worker["last_heartbeat_time"]
    ]
    since = since or datetime.now(UTC) - SILENCE
    names = tuple(sorted(str(deployment["name"]) for deployment in deployments))
    return Health(True, mlflow, any(sign > since for sign in signs), names)


def mlflow_answers(servers: Servers) -> bool:
    """Whether MLflow's server answers; a store without a server counts as one."""
    return not servers.mlflow.startswith("http") or _answers(f"{servers.mlflow}/health")


def _listed(client: httpx.Client, path: str) -> list[dict[str, object]]:
    """What the API lists; nothing where it is not there yet, or busy."""
    try:
        answer = client.post(path, json={})
    except httpx.TransportError:
        return []
    runs: list[dict[str, object]] = answer.json() if answer.is_success else []
    return runs


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=PATIENCE, verify=trusted()).is_success
    except httpx.TransportError:
        return False
