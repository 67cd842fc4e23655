"""What `agentfly up` is asked to serve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentfly_core.system.process import Owner
from agentfly_core.tracking.mlflow_client import MlflowStore
from flows.local.servers import Servers
from flows.local.state_dirs import Places
from flows.up.log import LOG
from flows.up.versions import Installed


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to serve: a project's places, where MLflow keeps its runs, and the ports."""

    places: Places
    mlflow: MlflowStore
    prefect_port: int
    mlflow_port: int

    @property
    def log(self) -> Path:
        """The log of all of it."""
        return self.places.state / LOG

    @property
    def options(self) -> list[str]:
        """What `agentfly up` is given for the same."""
        return [f"--prefect-port={self.prefect_port}", f"--mlflow-port={self.mlflow_port}"]

    def servers(self) -> Servers:
        """What this process is about to serve; an MLflow server elsewhere stays that."""
        mlflow = f"http://127.0.0.1:{self.mlflow_port}"
        return Servers(
            prefect=f"http://127.0.0.1:{self.prefect_port}",
            mlflow=self.mlflow.uri if self.mlflow.served else mlflow,
            version=Installed.now().version,
            owner=Owner.current(),
        )
