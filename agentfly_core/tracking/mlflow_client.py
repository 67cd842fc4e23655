"""MLflow's store, and one run in it; an entry that is sent twice is stored once."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from agentfly_core.records.run_record import Summary
from agentfly_core.system.formats import foreign_names
from agentfly_core.system.formats.foreign_names import mlflow_key, mlflow_text
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault, redact, shown, warn_once

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)
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
RUN_UID = "agentfly.run_uid"
SUCCESS = "agentfly.success"
DATASET = "agentfly.dataset"
TABLES = "mlflow.loggedArtifacts"
TABLES_LISTED = 80
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
"""Codes of MLflow's errors that a repetition does not change."""
EntryKind = Literal["metrics", "params", "tags"]
LONGEST = {"params": foreign_names.LONGEST_PARAMETER, "tags": foreign_names.LONGEST_TAG}


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


class MlflowRun:
    """A run in MLflow, found by its uid or created. One thread uses it at a time.

    An entry that MLflow refuses is logged, and the others are stored. Other failures raise the
    errors of MLflow's client.
    """

    def __init__(
        self, place: MlflowStore, experiment: str, name: str, uid: str, started_ms: int
    ) -> None:
        from mlflow.exceptions import MlflowException

        experiment, name = (mlflow_text(n, foreign_names.LONGEST_KEY) for n in (experiment, name))
        self.client = place.connect()
        if self.client.get_experiment_by_name(experiment) is None:
            artifacts = None if place.served else f"{place.state.as_uri()}/mlartifacts"
            try:
                self.client.create_experiment(experiment, artifacts)
            except MlflowException as error:
                if error.error_code != "RESOURCE_ALREADY_EXISTS":  # another process was faster
                    raise
        existing = self.client.get_experiment_by_name(experiment)
        assert existing, f"{experiment} was created"
        number = existing.experiment_id
        query = f"tags.`{RUN_UID}` = '{uid}'"
        run = next(iter(self.client.search_runs([number], query, max_results=1)), None)
        run = run or self.client.create_run(number, started_ms, {RUN_UID: uid}, name)
        self.run_id: str = run.info.run_id
        self.client.update_run(self.run_id, status="RUNNING")
        self._params, self._tags = dict(run.data.params), dict(run.data.tags)

    def tag(self, name: str) -> str:
        """The value of a tag, empty without one."""
        return str(self._tags.get(mlflow_key(name), ""))

    def settings(self, values: Mapping[str, JSON]) -> None:
        """Log settings as parameters, which MLflow never changes.

        A setting that a continued run changed becomes the tag `agentfly.continued.NAME`.
        """
        from mlflow.entities import Param

        params = {n: Param(mlflow_key(n), _cut(str(v), "params")) for n, v in values.items()}
        self._log("params", {n: p for n, p in params.items() if p.key not in self._params})
        self._params = {p.key: p.value for p in params.values()} | self._params
        changed = [name for name, p in params.items() if self._params[p.key] != p.value]
        self.tags({f"agentfly.continued.{name}": str(values[name]) for name in changed})

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags that MLflow lacks or has with another value."""
        from mlflow.entities import RunTag

        tags = {n: RunTag(mlflow_key(n), _cut(value, "tags")) for n, value in values.items()}
        new = {name: tag for name, tag in tags.items() if self._tags.get(tag.key, "") != tag.value}
        self._log("tags", new)
        self._tags |= {tag.key: tag.value for tag in new.values()}

    def points(self, metrics: Mapping[str, float], step: int, time_ms: int) -> None:
        """Log metrics measured at `time_ms` (milliseconds since 1970)."""
        from mlflow.entities import Metric

        points = {n: Metric(mlflow_key(n), value, time_ms, step) for n, value in metrics.items()}
        self._log("metrics", points)

    def dataset(self, name: str, uri: str, digest: str, context: str) -> None:
        """Log a dataset as an input; MLflow keeps 36 digits of the digest, a tag all of them."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        name = mlflow_text(name, foreign_names.LONGEST_KEY)
        dataset = Dataset(name, digest[:36], "agentfly", json.dumps({"uri": uri}))
        tags = [InputTag("mlflow.data.context", context), InputTag("agentfly.digest", digest)]
        inputs = [DatasetInput(dataset, tags)]
        self._attempt(f"the dataset {name}", lambda: self.client.log_inputs(self.run_id, inputs))

    def table(self, name: str, step: int, frame: pd.DataFrame) -> None:
        """Log a step's table in the form that MLflow's pages show; they list the newest ones."""
        path, text = f"{name}/step-{step:06d}.json", frame.to_json(orient="split", index=False)
        self._attempt(f"the table {path}", lambda: self.client.log_text(self.run_id, text, path))
        listed, entry = json.loads(self.tag(TABLES) or "[]"), {"path": path, "type": "table"}
        if entry not in listed:
            self.tags({TABLES: json.dumps([*listed, entry][-TABLES_LISTED:])})

    def register(self, model: str, lineage: Mapping[str, str]) -> None:
        """Make a policy a version of `model` with the tags `lineage`, once; move the aliases.

        `last` is the newest version, `best` the one of highest success on that one's dataset.
        """
        from mlflow.exceptions import MlflowException

        model = foreign_names.mlflow_model(model)
        tags = {mlflow_key(n): mlflow_text(text, LONGEST["tags"]) for n, text in lineage.items()}
        versions = list(self.client.search_model_versions(f"name = '{model}'"))
        if (self.run_id, tags[DIGEST]) not in [(v.run_id, v.tags.get(DIGEST)) for v in versions]:
            with contextlib.suppress(MlflowException):  # it exists
                self.client.create_registered_model(model)
            pointer = f"policy/{tags[DIGEST][:16]}"
            self.client.log_dict(self.run_id, tags, f"{pointer}/policy.json")
            source = f"{self.client.get_run(self.run_id).info.artifact_uri}/{pointer}"
            versions.append(
                self.client.create_model_version(
                    model, source, self.run_id, tags=tags, await_creation_for=0
                )
            )
        tried = {int(v.version): v.tags for v in versions if {SUCCESS, DATASET} <= {*v.tags}}
        last = max(tried)
        alike = [number for number in tried if tried[number][DATASET] == tried[last][DATASET]]
        best = max(alike, key=lambda number: (float(tried[number][SUCCESS]), number))
        self.client.set_registered_model_alias(model, "last", str(last))
        self.client.set_registered_model_alias(model, "best", str(best))

    def finish(self, status: str, time_ms: int, summary: Summary | None = None) -> None:
        """End the run as FINISHED, FAILED or KILLED; log its summary as summary.json."""
        if summary:
            self.client.log_dict(self.run_id, dict(summary), "summary.json")
        self.client.set_terminated(self.run_id, status, time_ms)

    def _attempt(self, name: str, call: Callable[[], object]) -> None:
        """Call; a failure while MLflow answers is logged, and the rest is sent.

        For files and datasets: a full or forbidden artifact store must not hold back metrics.
        """
        try:
            call()
        except Exception as error:  # clients of artifact stores raise many types
            self.client.get_run(self.run_id)  # raises during an outage
            _refused(name, error)

    def _log(self, kind: EntryKind, entries: Mapping[str, Any]) -> None:
        """Log entries by name. A refused batch is halved until each refused entry is alone, also
        one above MLflow's limit of 100 parameters or tags and 1,000 metrics.
        """
        from mlflow.exceptions import MlflowException

        if not entries:
            return
        try:
            batch: dict[str, Any] = {kind: [*entries.values()]}
            self.client.log_batch(self.run_id, **batch)
        except MlflowException as error:
            if error.error_code not in REFUSALS:
                raise
            if len(entries) == 1:
                _refused(f"{shown(*entries)} of the {kind}", error)
                return
            names, middle = [*entries], len(entries) // 2
            self._log(kind, {name: entries[name] for name in names[:middle]})
            self._log(kind, {name: entries[name] for name in names[middle:]})


def _refused(name: str, error: Exception) -> None:
    warn_once(logger, f"MLflow refused {name} ({fault(error, 200)}).")


def _cut(value: str, kind: Literal["params", "tags"]) -> str:
    return mlflow_text(redact(value), LONGEST[kind])
