"""Write runs to an MLflow store.

If an entry (a metric, parameter or tag) is sent twice, MLflow stores the entry only once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.models.type_names import DataFrame
from agentfly_core.system.formats import foreign_names, hashing
from agentfly_core.system.formats.foreign_names import mlflow_key, mlflow_text
from agentfly_core.system.formats.json_value import JSON, flat
from agentfly_core.system.formats.text import fault, redact, warn_once

if TYPE_CHECKING:
    from mlflow import MlflowClient

logger = logging.getLogger(__name__)
RUN_UID = "agentfly.run_uid"
FLOW_RUN = "agentfly.prefect_flow_run"
DIGEST, SUCCESS, DATASET = "agentfly.policy_digest", "agentfly.success", "agentfly.dataset"
TABLES, TABLES_LISTED = "mlflow.loggedArtifacts", 80
REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST")
"""Codes of MLflow errors that occur again if the request is repeated."""
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@dataclass(frozen=True, slots=True)
class MlflowStore:
    """The address of MLflow's store.

    `MlflowStore("http://mlflow:5000", "/shop/.agentfly", "MLFLOW_TRACKING_URI")`

    `state` is the folder for the project's own MLflow database and artifacts. `why` names the
    setting or the environment variable with the address. If neither is set, `why` is "the project's
    own store".
    """

    uri: str
    state: Path
    why: str

    @classmethod
    def choose(cls, state: Path, chosen: str = "") -> MlflowStore:
        """Choose the address of MLflow's store.

        `chosen` is the address in the site's settings. If it is empty, the environment variable
        MLFLOW_TRACKING_URI is used. If both are empty, the address is a database in the folder
        `state`.
        """
        state = state.resolve()
        if chosen:
            return cls(chosen, state, "mlflow_tracking_uri of the site")
        if uri := os.environ.get("MLFLOW_TRACKING_URI"):
            return cls(uri, state, "MLFLOW_TRACKING_URI")
        return cls(f"sqlite:///{state}/mlflow.db", state, "the project's own store")

    @property
    def served(self) -> bool:
        """Whether the address `uri` is the address of a server.

        A server chooses the folder of MLflow's artifacts itself. Without a server, artifacts are
        written to the subfolder `mlartifacts` of the folder `state`.
        """
        return self.uri.startswith(("http://", "https://", "databricks"))

    def connect(self) -> MlflowClient:
        """Return a client of this store. If a server does not answer within 10 seconds, requests
        fail.
        """
        self.create()
        return _client(self.uri)

    def create(self) -> None:
        """Create the SQLite database of this store if it is missing.

        The database appears only when it is complete. MLflow creates the tables one by one, so a
        killed process would otherwise leave a database that MLflow can neither use nor repair.
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
                # linking fails if the file exists; renaming would replace the database that another
                # process has made
                os.link(new, path)


def _client(uri: str) -> MlflowClient:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    client: Callable[[str], MlflowClient] = MlflowClient
    return client(uri)


def set_aliases(place: MlflowStore, model: str, digests: Mapping[str, str]) -> None:
    """Move the aliases of a registered model.

    `digests` maps each alias to the digest of a policy. The alias is moved to the newest version of
    the model with this digest. If no version has this digest, the alias is removed.
    """
    client, model = place.connect(), foreign_names.mlflow_model(model)
    versions = client.search_model_versions(f"name = '{model}'")
    for alias, digest in digests.items() if versions else ():
        numbers = [int(v.version) for v in versions if v.tags.get(DIGEST) == digest]
        if numbers:
            client.set_registered_model_alias(model, alias, str(max(numbers)))
        else:
            client.delete_registered_model_alias(model, alias)


def add_report(place: MlflowStore, run_id: str, text: str, address: str) -> None:
    """Log the report `text` of a night as report.md of the night's MLflow run.

    `address` is the address of the night's flow run in Prefect, and becomes a tag.
    """
    client = place.connect()
    client.log_text(run_id, foreign_names.storable(text), "report.md")
    client.set_tag(run_id, FLOW_RUN, address)


def page(place: MlflowStore, run_id: str, server: str) -> str:
    """Return the address of the page with the charts of a run on the MLflow server `server`."""
    run = f"experiments/{place.connect().get_run(run_id).info.experiment_id}/runs/{run_id}"
    return f"{server.rstrip('/')}/#/{run}/model-metrics?workflowType=machine_learning"


class MlflowRun:
    """A run in MLflow. Only one thread at a time may use it.

    The run is found by a tag with the `uid` of the AgentFly run. A missing run is created.
    If MLflow refuses an entry, a warning is logged and all other entries are stored. Other errors
    of MLflow's client are raised.
    """

    def __init__(
        self, place: MlflowStore, experiment: str, name: str, uid: str, started_ms: int
    ) -> None:
        experiment, name = (mlflow_text(n, foreign_names.LONGEST_KEY) for n in (experiment, name))
        self.client = place.connect()
        artifacts = None if place.served else f"{place.state.as_uri()}/mlartifacts"
        # created before searching, because two processes that both search first would both create
        # it
        with _unless_existing():
            self.client.create_experiment(experiment, artifacts)
        existing = self.client.get_experiment_by_name(experiment)
        assert existing is not None, "it was created"
        number = existing.experiment_id
        query = f"tags.`{RUN_UID}` = '{uid}'"
        run = next(iter(self.client.search_runs([number], query, max_results=1)), None)
        run = run or self.client.create_run(number, started_ms, {RUN_UID: uid}, name)
        self.run_id: str = run.info.run_id
        self.started_ms: int = run.info.start_time
        self.client.update_run(self.run_id, status="RUNNING")
        self._params, self._tags = dict(run.data.params), dict(run.data.tags)

    def tag(self, name: str) -> str:
        """Return the value of a tag, or an empty text if the tag is missing."""
        return str(self._tags.get(mlflow_key(name), ""))

    def settings(self, values: Mapping[str, JSON], site: Mapping[str, JSON]) -> None:
        """Log the settings of a run, and of the machine (`site`), as parameters.

        MLflow does not allow changes of parameters. If a continued run has changed a setting, the
        new value becomes the tag `agentfly.continued.NAME`. The digests of the settings and of the
        code also become tags.
        """
        from mlflow.entities import Param

        longest, named = foreign_names.LONGEST_PARAMETER, {**flat(values), **flat(site, "site.")}
        params = {mlflow_key(n): mlflow_text(redact(str(v)), longest) for n, v in named.items()}
        self._log("params", [Param(n, v) for n, v in params.items() if n not in self._params])
        self._params = params | self._params
        changed = {name: v for name, v in params.items() if self._params[name] != v}
        tags = {f"agentfly.continued.{name}": v for name, v in changed.items()}
        tags["agentfly.code_digest"] = hashing.digest(code) if (code := values.get("code")) else ""
        self.tags({"agentfly.settings_digest": hashing.digest({**values}), **tags})

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags. Tags that already have the same value in MLflow are not sent."""
        from mlflow.entities import RunTag

        tags = _tags(values)
        self._log("tags", [RunTag(n, v) for n, v in tags.items() if self._tags.get(n, "") != v])
        self._tags |= tags

    def points(self, metrics: Mapping[str, float], step: int, time_ms: int) -> None:
        """Log metrics of the step `step`, which were measured at `time_ms` (milliseconds since
        1970).
        """
        from mlflow.entities import Metric

        self._log("metrics", [Metric(mlflow_key(n), v, time_ms, step) for n, v in metrics.items()])

    def dataset(self, name: str, uri: str, digest: str, version: str) -> None:
        """Log the dataset as an input of the run, and its DVC version as a tag.

        MLflow stores only 36 digits of the digest, so a tag of the input has all digits.
        """
        from mlflow.entities import Dataset, DatasetInput, InputTag

        name = mlflow_text(name, foreign_names.LONGEST_KEY)
        dataset = Dataset(name, digest[:36], "agentfly", json.dumps({"uri": uri}))
        tags = [InputTag("mlflow.data.context", "training"), InputTag("agentfly.digest", digest)]
        with self._attempt(f"the dataset {name}"):
            self.client.log_inputs(self.run_id, [DatasetInput(dataset, tags)])
        self.tags({"agentfly.dvc_dataset": version})

    def table(self, name: str, step: int, frame: DataFrame) -> None:
        """Log a table of a step as the artifact NAME/step-000007.json.

        MLflow's pages show only the newest 80 such artifacts of a run as tables.
        """
        path = f"{name}/step-{step:06d}.json"
        with self._attempt(f"the table {path}"):
            self.client.log_text(self.run_id, frame.to_json(orient="split", index=False), path)
        listed, entry = json.loads(self.tag(TABLES) or "[]"), {"path": path, "type": "table"}
        if entry not in listed:
            self.tags({TABLES: json.dumps([*listed, entry][-TABLES_LISTED:])})

    def register(self, model: str, lineage: Mapping[str, str]) -> None:
        """Register a policy as a version of `model` with the tags `lineage`, and move the aliases.

        A policy is registered only once. The alias `last` names the newest version. The alias
        `best` names the version with the highest success. Only versions with the same dataset as
        `last` are compared.
        """
        client, model, tags = self.client, foreign_names.mlflow_model(model), _tags(lineage)
        newest_first = ["version_number DESC"]
        all_versions = client.search_model_versions(f"name = '{model}'", order_by=newest_first)
        versions = [version for version in all_versions if DATASET in version.tags]
        if (self.run_id, tags[DIGEST]) not in [(v.run_id, v.tags[DIGEST]) for v in versions]:
            with _unless_existing():
                client.create_registered_model(model)
            pointer = f"policy/{tags[DIGEST][:16]}"
            client.log_dict(self.run_id, tags, f"{pointer}/policy.json")
            source = f"{client.get_run(self.run_id).info.artifact_uri}/{pointer}"
            new = client.create_model_version(
                model, source, self.run_id, tags, await_creation_for=0
            )
            versions.insert(0, new)
        last = versions[0]
        alike = [v for v in versions if v.tags[DATASET] == last.tags[DATASET]]
        # runs without rewards have no success
        best = max(alike, key=lambda version: float(version.tags.get(SUCCESS, -1.0)))
        client.set_registered_model_alias(model, "last", last.version)
        client.set_registered_model_alias(model, "best", best.version)

    def finish(self, status: str, time_ms: int, summary: Mapping[str, JSON] | None = None) -> None:
        """End the run with the status FINISHED, FAILED or KILLED.

        `summary` is logged as the file summary.json.
        """
        if summary:
            self.client.log_dict(self.run_id, dict(summary), "summary.json")
        self.client.set_terminated(self.run_id, status, time_ms)

    @contextlib.contextmanager
    def _attempt(self, name: str) -> Iterator[None]:
        """Log an error of the `with` block as a warning.

        If MLflow itself cannot be reached, an error is raised. Files and datasets are sent in such
        a block, so metrics are still sent if MLflow's artifact store is full or refuses access.
        """
        try:
            yield
        except Exception as error:  # clients of artifact stores raise errors of many types
            self.client.get_run(self.run_id)  # raises an error during an outage
            _refused(name, error)

    def _log(self, kind: str, entries: Sequence[Any]) -> None:
        """Send metrics, parameters or tags in a batch.

        If MLflow refuses a batch, the two halves of the batch are sent separately, until each
        refused entry is alone in a batch. This also handles MLflow's limits: a batch may have 1,000
        metrics, but only 100 parameters or tags.
        """
        from mlflow.exceptions import MlflowException

        batches = [entries] if entries else []
        for batch in batches:
            named: dict[str, Any] = {kind: batch}
            try:
                self.client.log_batch(self.run_id, **named)
            except MlflowException as error:
                if error.error_code not in REFUSALS:
                    raise
                if len(batch) == 1:
                    _refused(f"{batch[0].key!r} of the {kind}", error)
                else:
                    middle = len(batch) // 2
                    batches += [batch[:middle], batch[middle:]]


@contextlib.contextmanager
def _unless_existing() -> Iterator[None]:
    """Ignore the error of MLflow that an object already exists. All other errors are raised."""
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise


def _refused(name: str, error: Exception) -> None:
    warn_once(logger, f"MLflow refused {name} ({fault(error, 200)}).")


def _tags(values: Mapping[str, str]) -> dict[str, str]:
    longest = foreign_names.LONGEST_TAG
    return {mlflow_key(n): mlflow_text(redact(value), longest) for n, value in values.items()}
