"""Where the files and artifacts of a run lie in its store, and how it was started."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TypedDict

from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON

logger = logging.getLogger(__name__)


class StepLayout:
    """What a step leaves: `StepLayout("runs/demo/steps/000007").policy` is
    `runs/demo/steps/000007/policy`.

    `scored` holds the scores of all its episodes; its manifest's inputs name the shards, see
    `rollouts`. `learner` is the state that goes with `policy`; `metrics`, a JSON file, says what
    the step measured.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.scored = f"{uri}/scored"
        self.policy = f"{uri}/policy"
        self.learner = f"{uri}/learner"
        self.metrics = f"{uri}/metrics.json"

    def rollout(self, shard: int) -> str:
        """The episodes of one shard."""
        return shard_uri(self.uri, shard)


class RunLayout:
    """Paths of a run: `RunLayout("demo").step(7).policy` is `runs/demo/steps/000007/policy`.

    `record` says how the run was started, `start` which policy its first step starts from, `links`
    its ids in other systems, `tags` its tags, `summary` how it ended; a finished run has a
    `ledger`, and `mlflow` once MLflow has all of it; a judged night has a `report`; `night` has a
    copy of its entries in the night ledger.
    """

    def __init__(self, name: str) -> None:
        self.uri = f"runs/{name}"
        self.record = f"{self.uri}/run.json"
        self.start = f"{self.uri}/start.json"
        self.links = f"{self.uri}/links.json"
        self.tags = f"{self.uri}/tags.json"
        self.mlflow = f"{self.uri}/mlflow.json"
        self.summary = f"{self.uri}/summary.json"
        self.ledger = f"{self.uri}/ledger"
        self.report = f"{self.uri}/report.md"
        self.night = f"{self.uri}/night.json"

    def step(self, number: int) -> StepLayout:
        """Where the outputs of step 1, 2, ... lie."""
        return StepLayout(f"{self.uri}/steps/{number:06d}")

    def rescored(self, rewards: str) -> str:
        """Below which the scores of other rewards lie, one artifact a step; `rewards` is a digest
        of these.
        """
        return f"{self.uri}/rescored/{rewards[:16]}"

    def steps(self, store: Store) -> list[int]:
        """The steps that have begun, in order."""
        return [int(name) for name in store.names(f"{self.uri}/steps") if name.isdigit()]


def record_of(store: Store, name: str) -> RunRecord | None:
    """The run.json of a run, or None where there is none; Damaged says what to do about it."""
    try:
        record: RunRecord | None = store.read_json(RunLayout(name).record)
        return record
    except Damaged as damage:
        raise Damaged(
            f"{damage} Put it back from a copy. Without one, remove it, and the command that "
            "started the run continues from what it has published, in MLflow as a new run; with "
            "other settings that would be made anew."
        ) from None


def run_records(store: Store) -> Iterator[RunRecord]:
    """The run.json of each run, without damaged ones, which are reported where they are used."""
    for name in store.names("runs"):
        with suppress(Damaged):
            if record := record_of(store, name):
                yield record


def summary_of(store: Store, name: str) -> Summary | None:
    """A finished run's summary; a damaged one is logged and counts as none: the run rewrites it."""
    try:
        summary: Summary | None = store.read_json(RunLayout(name).summary)
        return summary
    except Damaged as damage:
        logger.warning("%s It counts as unfinished; its own command continues it.", damage)
        return None


def finished_summary(store: Store, name: str, steps: JSON) -> Summary | None:
    """The summary of a run that has done this many steps, which are all that it is to do."""
    summary = summary_of(store, name)
    return summary if summary and summary["steps"] == steps else None


def done_by(store: Store, run: str, step: int) -> str:
    """The run that did a step, 0 for the start: this one, or where it is a fork from a later step
    the one that it continues from.
    """
    try:
        record = store.read_json(RunLayout(run).record)
    except Damaged:  # what the run did itself can be read all the same
        record = None
    fork = record["settings"].get("fork") if record else None
    return done_by(store, fork["run"], step) if fork and step <= fork["step"] else run


def step_layout(store: Store, name: str, step: int) -> StepLayout:
    """Where a run's step lies: with the run that did it, where a fork continues from that."""
    return RunLayout(done_by(store, name, step)).step(step)


def shard_uri(folder: str, number: int) -> str:
    """Where a shard's episodes lie in a folder: `runs/demo/steps/000007/rollout-000`."""
    return f"{folder}/rollout-{number:03d}"


class StepMetrics(TypedDict):
    """metrics.json of a step: `{"step": 7, "time_ms": 1763740000000, "metrics": {...}}`."""

    step: int
    time_ms: int
    metrics: Mapping[str, float]


def metrics_of(store: Store, step: StepLayout) -> StepMetrics:
    """The metrics.json of a step that ended; raises Damaged where it is missing or damaged."""
    metrics: StepMetrics | None = store.read_json(step.metrics)
    if metrics is None:
        raise Damaged(f"{store.uri}/{step.metrics} is missing.")
    return metrics


def begun_shards(store: Store, folder: str) -> list[str]:
    """The shards in a folder, in order, those that are not published yet, too."""
    return [f"{folder}/{name}" for name in store.names(folder) if name.startswith("rollout-")]


def rollouts(scored: Artifact) -> list[Pointer]:
    """The rollouts, in order, whose episodes `scored` holds the scores of; they lie beside it."""
    folder = scored.uri.rpartition("/")[0]
    shards = sorted(scored.manifest["inputs"].items())
    return [Pointer(f"{folder}/{name}", digest) for name, digest in shards]
