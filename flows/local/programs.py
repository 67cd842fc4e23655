"""The programs that `agentfly up` keeps: their commands and their environments."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.ports import mark
from flows.local.prefect_server import PAGE_API, POOL
from flows.local.sign_in import SignIn

WORKER = "agentfly-up"
LOOK_SECONDS = 2
QUIET = {"PREFECT_LOGGING_ROOT_LEVEL": "CRITICAL"}
"""Of loggers other than Prefect's: each look of a worker has docket log a hundred lines about a
locked database, and then it tries again.
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program to be kept alive: `Program("mlflow", [python, "-m", "mlflow", "server"], {})`."""

    kind: str
    command: list[str]
    env: dict[str, str] = field(repr=False)


def prefect_server(url: str, state: Path, sign_in: SignIn) -> Program:
    """Prefect's server and its UI at a URL; the page sends requests to that URL."""
    command = [sys.executable, "-m", "prefect", "server", "start", *_at(url)]
    env = {**QUIET, PAGE_API: f"{url}/api", **mark("prefect", state), **sign_in.prefect_server}
    return Program("prefect", command, env)


def mlflow_server(url: str, place: MlflowStore, sign_in: SignIn) -> Program:
    """MLflow's server and its UI, on the store in which runs are recorded."""
    command = [sys.executable, "-m", "mlflow", "server", "--app-name", "basic-auth", *_at(url)]
    command += ["--workers", "1", "--backend-store-uri", place.uri]
    command += ["--artifacts-destination", f"{place.state}/mlartifacts"]
    env = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    env |= mark("mlflow", place.state, place.uri) | sign_in.mlflow_server(place.state)
    return Program("mlflow", command, env)


def worker(api: str, sign_in: SignIn) -> Program:
    """The worker that starts what is triggered or scheduled, at most LOOK_SECONDS later."""
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", POOL]
    command += ["--type", "process", "--name", WORKER]
    looks = {"PREFECT_WORKER_QUERY_SECONDS": str(LOOK_SECONDS), "PREFECT_API_URL": api}
    return Program("worker", command, {**looks, **sign_in.prefect_client})


def _at(url: str) -> list[str]:
    place = urlsplit(url)
    return ["--host", str(place.hostname), "--port", str(place.port)]
