"""MLflow as a sink: what a run leaves in files is sent along, in order, by a thread that no stage
ever waits for.

Everything here may be sent again and is stored once: points carry the time at which they were
measured, the MLflow run is found by the tag `agentfly.run_uid`, tables and files have fixed names,
model versions are found by their digest. While MLflow cannot be reached what is to be sent is kept;
what a process could not send, the run's next one sends from the files of the run. This is the only
module that imports MLflow, and only its thread waits for that.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.records.run_record import Summary
from agentfly_core.system.formats.foreign_names import (
    LONGEST_KEY,
    LONGEST_PARAMETER,
    LONGEST_TAG,
    mlflow_key,
    mlflow_model,
    mlflow_text,
    storable,
)
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import redact
from agentfly_core.tracking.mlflow_batches import Entry, log_entries
from agentfly_core.tracking.outbox import Outbox, Unsent

if TYPE_CHECKING:
    import pandas as pd
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

RUN_UID = "agentfly.run_uid"
DIGEST = "agentfly.policy_digest"
SUCCESS = "agentfly.success"
DATASET = "agentfly.dataset"
TAGS = "agentfly.tags"
TABLES = "mlflow.loggedArtifacts"
TABLES_LISTED = 80
SHOWN = 3
"""Unsent entries that a message names."""
ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "ERROR",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


@dataclass(frozen=True, slots=True)
class MlflowStore:
    """Where MLflow keeps what it is sent, and why there.

    `MlflowStore("sqlite:////home/user/shop/.agentfly/mlflow.db", "/home/user/shop/.agentfly", "the
    project's own store")`
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
        """Whether a server stands before the store (and says itself where artifacts go)."""
        return self.uri.startswith(("http://", "https://", "databricks"))


@dataclass(frozen=True, slots=True)
class Success:
    """The share of held-out problems that a policy solves: `Success(0.91, "f491...84")`.

    `dataset` is the digest of what they are part of: of other problems it says nothing.
    """

    share: float
    dataset: str


class Tracker:
    """Sends what a run did to MLflow; every method returns at once.

    `Tracker(place, "quickstart", "quickstart-1f2e3d4c", run_uid,
    started_ms)`. Nothing raises: what could not be sent is returned by `flush` and `close`.
    """

    def __init__(
        self, place: MlflowStore, experiment: str, run_name: str, run_uid: str, started_ms: int
    ) -> None:
        self.place = place
        self._outbox = Outbox(partial(_Sink, place, experiment, run_name, run_uid, started_ms))

    @property
    def run_id(self) -> str | None:
        """The MLflow run's id; None while MLflow has not answered yet."""
        sink = self._outbox.connection
        return sink.run_id if sink else None

    def params(self, values: Mapping[str, JSON]) -> None:
        """Log settings; one that a continue changed becomes the tag `agentfly.continued.<name>`."""
        texts = {name: redact(str(value)) for name, value in values.items()}
        self._outbox.put("settings", _Sink.params, texts)
        self._outbox.put("changed settings", _Sink.changed_params, texts)

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags of the run."""
        texts = {name: redact(value) for name, value in values.items()}
        self._outbox.put("tags", _Sink.tags, texts)

    def points(self, metrics: Mapping[str, float], step: int, time_ms: int) -> None:
        """Log metrics measured at `time_ms` (milliseconds since 1970); sent again, the same point
        is stored once.
        """
        self._outbox.put(f"metrics of step {step}", _Sink.points, dict(metrics), step, time_ms)

    def dataset(self, name: str, uri: str, digest: str, context: str) -> None:
        """Name a dataset as an input of the run; MLflow keeps the first 36 digits of the digest, a
        tag all of them.
        """
        self._outbox.put(f"dataset {name}", _Sink.dataset, name, uri, digest, context)

    def table(self, name: str, step: int, frame: Callable[[], pd.DataFrame]) -> None:
        """Log a table for people, one artifact a step; `frame` is called by the thread, if MLflow
        lacks the table.
        """
        artifact = f"{name}/step-{step:06d}.json"
        self._outbox.put(f"table {name} of step {step}", _Sink.table, artifact, frame)

    def summary(self, values: Summary) -> None:
        """Log how the run ended as the artifact summary.json, with the MLflow run's id."""
        self._outbox.put("the summary", _Sink.summary, values)

    def register(
        self, model: str, uri: str, digest: str, success: Success, tags: Mapping[str, str]
    ) -> None:
        """Register a policy as a version of `model`: a pointer to `uri` with its lineage in tags.

        The alias `last` names the newest version, `best` the one of highest success among those
        that were tried on the newest one's dataset: the newest itself where there is no other.
        """
        judged = {SUCCESS: f"{success.share:.4f}", DATASET: success.dataset}
        lineage = {**tags, DIGEST: digest, "agentfly.policy_uri": uri, **judged}
        self._outbox.put(f"model version {digest[:12]}", _Sink.register, model, lineage)

    def finish(self, status: str, time_ms: int) -> None:
        """Say how the run ended (FINISHED, FAILED or KILLED) and when."""
        self._outbox.put("the end of the run", _Sink.finish, status, time_ms)

    def flush(self, deadline: float | None = None) -> Unsent:
        """Wait until all is sent, at most `deadline` seconds, less when MLflow does not answer.

        By default a server gets 20 seconds, since it may hang. A store without a server gets 1800:
        this process writes it, and a busy machine takes minutes to create one.
        """
        usual = 20.0 if self.place.served else 1800.0
        return self._outbox.flush(usual if deadline is None else deadline)

    def close(self, deadline: float | None = None) -> Unsent:
        """Flush, and send no more."""
        unsent = self.flush(deadline)
        self._outbox.close()
        return unsent

    def missing(self, unsent: Unsent, command: str) -> str:
        """Describe what MLflow lacks, and what to do; `command` is a phrase."""
        store = f"MLflow ({self.place.uri})"
        lines = [f"{store} refused {item}." for item in unsent.refused[:SHOWN]]
        if (more := len(unsent.refused) - SHOWN) > 0:
            lines.append(f"{store} refused {more} more.")
        if unsent.refused:
            lines.append("The files of the store still contain what MLflow refused.")
        if unsent.waiting:
            more_follow = ", ..." if len(unsent.waiting) > SHOWN else ""
            lines.append(f"{store} does not answer ({unsent.reason}).")
            lines.append(
                f"{len(unsent.waiting)} not sent: {', '.join(unsent.waiting[:SHOWN])}{more_follow}."
            )
            lines.append(f"Nothing is lost: {command} sends it.")
        return "\n".join(lines)


def set_aliases(place: MlflowStore, model: str, digests: Mapping[str, str]) -> None:
    """Let each alias of a registered model name the newest version of the policy with this digest,
    or nothing where it is empty or no version is registered.
    """
    client, model = _connect(place), mlflow_model(model)
    versions = client.search_model_versions(f"name = '{model}'")
    if not versions:
        return
    for alias, digest in digests.items():
        numbers = [int(v.version) for v in versions if v.tags.get(DIGEST) == digest]
        if numbers:
            client.set_registered_model_alias(model, alias, str(max(numbers)))
        elif alias in client.get_registered_model(model).aliases:
            client.delete_registered_model_alias(model, alias)


def add_report(place: MlflowStore, run_id: str, text: str, tags: Mapping[str, str]) -> None:
    """Log a text as the artifact report.md of a run that may be over, and set tags of the run."""
    _connect(place).log_text(run_id, storable(text), "report.md")
    set_tags(place, run_id, tags)


def set_tags(place: MlflowStore, run_id: str, tags: Mapping[str, str]) -> None:
    """Set tags of a run that may be over; raises whatever MLflow does where it is not reached."""
    client = _connect(place)
    for name, value in tags.items():
        client.set_tag(run_id, mlflow_key(name), mlflow_text(redact(value), LONGEST_TAG))


def page(place: MlflowStore, run_id: str, server: str) -> str:
    """The address of a run's charts at the `server` that shows a place's runs."""
    run = f"experiments/{_connect(place).get_run(run_id).info.experiment_id}/runs/{run_id}"
    return f"{server.rstrip('/')}/#/{run}/model-metrics?workflowType=machine_learning"


class _Sink:
    """One run of an MLflow store, through explicit ids; used by one thread."""

    def __init__(
        self, place: MlflowStore, experiment: str, run_name: str, run_uid: str, started_ms: int
    ) -> None:
        experiment, run_name = (mlflow_text(n, LONGEST_KEY) for n in (experiment, run_name))
        place.state.mkdir(parents=True, exist_ok=True)
        with (place.state / "mlflow.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # several processes at once on a new database all fail
            self.client = _connect(place)
            existing = self.client.get_experiment_by_name(experiment)
            # a server says itself where artifacts go
            artifacts = None if place.served else f"{place.state.as_uri()}/mlartifacts"
            new = None if existing else self.client.create_experiment(experiment, artifacts)
            self.experiment_id = str(existing.experiment_id if existing else new)
        self.run_id = self._run(run_name, run_uid, started_ms)

    def answers(self) -> bool:
        """Whether MLflow answers at all."""
        try:
            self.client.get_run(self.run_id)
        except Exception:  # any failure of the store is the answer "no"
            return False
        return True

    def params(self, values: Mapping[str, str]) -> None:
        """Log params that the run lacks."""
        from mlflow.entities import Param

        before = self.client.get_run(self.run_id).data.params
        entries = [
            Entry(Param(mlflow_key(name), mlflow_text(text, LONGEST_PARAMETER)), (name, text))
            for name, text in values.items()
            if mlflow_key(name) not in before
        ]
        log_entries(self, "params", entries)

    def changed_params(self, values: Mapping[str, str]) -> None:
        """Set a tag for each param that the run has with another value."""
        before = self.client.get_run(self.run_id).data.params
        self.tags(
            {
                f"agentfly.continued.{name}": text
                for name, text in values.items()
                if (key := mlflow_key(name)) in before
                and before[key] != mlflow_text(text, LONGEST_PARAMETER)
            }
        )

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        from mlflow.entities import RunTag

        entries = [
            Entry(RunTag(mlflow_key(name), mlflow_text(text, LONGEST_TAG)), (name, text))
            for name, text in values.items()
        ]
        log_entries(self, "tags", entries)

    def points(self, metrics: Mapping[str, float], step: int, time_ms: int) -> None:
        """Log metrics."""
        from mlflow.entities import Metric

        entries = [
            Entry(Metric(mlflow_key(name), value, time_ms, step), (name, str(value)))
            for name, value in metrics.items()
        ]
        log_entries(self, "metrics", entries)

    def dataset(self, name: str, uri: str, digest: str, context: str) -> None:
        """Log a dataset input."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        name = mlflow_text(name, LONGEST_KEY)
        dataset = Dataset(name, digest[:36], "agentfly", json.dumps({"uri": uri}))
        tags = [InputTag("mlflow.data.context", context), InputTag("agentfly.digest", digest)]
        self.client.log_inputs(self.run_id, [DatasetInput(dataset, tags)])

    def table(self, artifact: str, frame: Callable[[], pd.DataFrame]) -> None:
        """Log a table that the run lacks, in the form that MLflow's pages show as one; they list
        the newest ones.
        """
        listed = json.loads(self.client.get_run(self.run_id).data.tags.get(TABLES, "[]"))
        entry = {"path": artifact, "type": "table"}
        if entry in listed:
            return
        folder, _, name = artifact.rpartition("/")
        with tempfile.TemporaryDirectory() as temporary:
            frame().to_json(Path(temporary) / name, orient="split", index=False)
            self.client.log_artifact(self.run_id, f"{temporary}/{name}", folder)
        self.client.set_tag(self.run_id, TABLES, json.dumps([*listed, entry][-TABLES_LISTED:]))

    def summary(self, values: Summary) -> None:
        """Log the summary."""
        self.client.log_dict(self.run_id, {**values, "mlflow_run_id": self.run_id}, "summary.json")

    def register(self, model: str, lineage: Mapping[str, str]) -> None:
        """Create the version unless there is one of this run and digest; move the aliases."""
        model = mlflow_model(model)
        lineage = {mlflow_key(n): mlflow_text(value, LONGEST_TAG) for n, value in lineage.items()}
        versions = self.client.search_model_versions(f"name = '{model}'")
        mine = [
            v for v in versions if v.run_id == self.run_id and v.tags.get(DIGEST) == lineage[DIGEST]
        ]
        version = mine[0] if mine else self._version(model, lineage)
        tried = {
            int(v.version): v.tags for v in [*versions, version] if {SUCCESS, DATASET} <= {*v.tags}
        }
        last = max(tried)
        alike = [number for number in tried if tried[number][DATASET] == tried[last][DATASET]]
        best = max(alike, key=lambda number: (float(tried[number][SUCCESS]), number))
        self.client.set_registered_model_alias(model, "last", str(last))
        self.client.set_registered_model_alias(model, "best", str(best))

    def finish(self, status: str, time_ms: int) -> None:
        """End the run."""
        self.client.set_terminated(self.run_id, status, time_ms)

    def _version(self, model: str, lineage: Mapping[str, str]) -> ModelVersion:
        from mlflow.exceptions import MlflowException

        try:
            self.client.create_registered_model(model)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        pointer = f"policy/{lineage[DIGEST][:16]}"
        self.client.log_dict(self.run_id, dict(lineage), f"{pointer}/policy.json")
        source = f"{self.client.get_run(self.run_id).info.artifact_uri}/{pointer}"
        return self.client.create_model_version(
            model, source, self.run_id, tags=dict(lineage), await_creation_for=0
        )

    def _run(self, name: str, uid: str, started_ms: int) -> str:
        runs = self.client.search_runs(
            [self.experiment_id], f"tags.`{RUN_UID}` = '{uid}'", max_results=1
        )
        if runs:
            self.client.update_run(runs[0].info.run_id, status="RUNNING")
            return str(runs[0].info.run_id)
        return str(
            self.client.create_run(self.experiment_id, started_ms, {RUN_UID: uid}, name).info.run_id
        )


def _connect(place: MlflowStore) -> MlflowClient:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from mlflow import MlflowClient

    client: Callable[[str], MlflowClient] = MlflowClient
    return client(place.uri)
