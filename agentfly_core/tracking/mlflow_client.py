"""Where MLflow's store is, and changes there of finished runs and of models."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.system.formats import foreign_names

if TYPE_CHECKING:
    from mlflow import MlflowClient

DIGEST = "agentfly.policy_digest"
TAGS = "agentfly.tags"
FLOW_RUN = "agentfly.prefect_flow_run"
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@dataclass(frozen=True, slots=True)
class MlflowStore:
    """The address of MLflow's store, and the setting that chose it.

    `MlflowStore("sqlite:////shop/.agentfly/mlflow.db", "/shop/.agentfly", "the project's own")`
    """

    uri: str
    state: Path
    why: str

    @classmethod
    def choose(cls, state: Path, chosen: str = "") -> MlflowStore:
        """The site's choice, else MLFLOW_TRACKING_URI, else a database in the folder `state`."""
        state = state.resolve()
        if chosen:
            return cls(chosen, state, "mlflow_tracking_uri of the site")
        if uri := os.environ.get("MLFLOW_TRACKING_URI"):
            return cls(uri, state, "MLFLOW_TRACKING_URI")
        return cls(f"sqlite:///{state}/mlflow.db", state, "the project's own store")

    @property
    def served(self) -> bool:
        """Whether it is a server, which chooses the folder of artifacts itself."""
        return self.uri.startswith(("http://", "https://", "databricks"))

    def connect(self) -> MlflowClient:
        """A client of this store; a server gets 10 seconds for each request."""
        self.create()
        return _client(self.uri)

    def create(self) -> None:
        """Create the SQLite database of this store if it is missing, completely or not at all.

        MLflow creates the tables one by one. A process killed in between would leave a database
        that MLflow can neither use nor repair.
        """
        scheme, _, database = self.uri.partition(":///")
        path = Path(database.partition("?")[0])
        if not scheme.startswith("sqlite") or path.exists():
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="mlflow-", dir=path.parent) as folder:
            new = Path(folder, path.name)
            _client(f"{scheme}:///{new}").search_experiments()
            with contextlib.suppress(FileExistsError):  # another process was faster
                os.link(new, path)


def _client(uri: str) -> MlflowClient:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    client: Callable[[str], MlflowClient] = MlflowClient
    return client(uri)


def set_aliases(place: MlflowStore, model: str, digests: Mapping[str, str]) -> None:
    """Move each alias of a registered model to the newest version of the policy with this digest.

    Without such a version the alias is removed.
    """
    client, model = place.connect(), foreign_names.mlflow_model(model)
    versions = client.search_model_versions(f"name = '{model}'")
    for alias, digest in digests.items() if versions else ():
        numbers = [int(v.version) for v in versions if v.tags.get(DIGEST) == digest]
        if numbers:
            client.set_registered_model_alias(model, alias, str(max(numbers)))
        elif alias in client.get_registered_model(model).aliases:
            client.delete_registered_model_alias(model, alias)


def add_report(place: MlflowStore, run_id: str, text: str, address: str) -> None:
    """Log a night's report as report.md of its run, and link its flow run's page."""
    client = place.connect()
    client.log_text(run_id, foreign_names.storable(text), "report.md")
    client.set_tag(run_id, FLOW_RUN, address)


def page(place: MlflowStore, run_id: str, server: str) -> str:
    """The address of a run's charts at a `server` of this store."""
    run = f"experiments/{place.connect().get_run(run_id).info.experiment_id}/runs/{run_id}"
    return f"{server.rstrip('/')}/#/{run}/model-metrics?workflowType=machine_learning"
