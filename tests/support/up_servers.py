"""The servers that `agentfly up` of a project runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import httpx

from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from flows.local.mlflow_ui import serving
from flows.local.own_servers import own_api
from flows.local.up import keeper
from tests.support.servers import client


@dataclass(frozen=True)
class Up:
    """A running `agentfly up`: its process, and the addresses and the sign-in of its servers."""

    pid: int
    api: dict[str, str]
    mlflow: str

    @classmethod
    def of(cls, state: Path) -> Up:
        """That of a project, which must run."""
        up = cls(keeper(state), own_api(state), serving(MlflowStore.choose(state)))
        assert up.pid and up.api and up.mlflow
        return up

    @property
    def url(self) -> str:
        """Prefect's API."""
        return self.api["PREFECT_API_URL"]

    @property
    def auth(self) -> tuple[str, str]:
        """Name and password."""
        name, _, password = self.api["PREFECT_API_AUTH_STRING"].partition(":")
        return name, password

    @property
    def http(self) -> httpx.Client:
        """A client of Prefect's API that signs in."""
        return client(self.url, self.auth)
