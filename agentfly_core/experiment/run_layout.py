"""Paths of files and artifacts of runs and plays in their store, and functions to read a run's
records.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import TypedDict

from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON

PLAYS = "plays"
logger = logging.getLogger(__name__)


class EpisodeLayout:
    """Paths of played episodes.

    `scored` contains the scores of all episodes; the inputs in its manifest name the shards, see
    `rollouts`.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.scored = f"{uri}/scored"

    def rollout(self, shard: int) -> str:
        """Return the path of one shard's episodes."""
        return shard_uri(self.uri, shard)


class StepLayout(EpisodeLayout):
    """Paths of a step: `StepLayout("runs/demo/steps/000007").policy` is
    `runs/demo/steps/000007/policy`.

    `learner` is the optimizer state of `policy`, `memory` the memory with which the policy plays,
    and `metrics` a JSON file.
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.memory = f"{uri}/memory"
        self.policy = f"{uri}/policy"
        self.learner = f"{uri}/learner"
        self.metrics = f"{uri}/metrics.json"


class PlayLayout(EpisodeLayout):
    """Paths of a play: `PlayLayout("quickstart-3").scored` is `plays/quickstart-3/scored`.

    `record` is a PlayRecord. `tokenizer` decodes the episodes' tokens.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{PLAYS}/{name}")
        self.record = f"{self.uri}/play.json"
        self.tokenizer = f"{self.uri}/tokenizer"


def plays(store: Store) -> list[str]:
    """Return the names of all plays, ordered by experiment and number."""

    def parts(name: str) -> tuple[str, int]:
        experiment, _, number = name.rpartition("-")
        return (experiment, int(number)) if number.isdecimal() else (name, 0)

    return sorted(store.names(PLAYS), key=parts)


def next_play(store: Store, experiment: str) -> str:
    """Return the first free name: `next_play(store, "quickstart")` is `quickstart-1` in an empty
    store.
    """
    taken = set(store.names(PLAYS))
    return next(name for n in count(1) if (name := f"{experiment}-{n}") not in taken)


class RunLayout:
    """Paths of a run: `RunLayout("demo").step(7).policy` is `runs/demo/steps/000007/policy`.

    `start` contains the policy before step 1, and `links` the run's ids in other systems. A
    finished run has a `summary` and a `ledger`. A night that was judged has a `report`, and `night`
    is a copy of its entries in the night ledger.
    """

    def __init__(self, name: str) -> None:
        self.uri = f"runs/{name}"
        self.record = f"{self.uri}/run.json"
        self.start = f"{self.uri}/start.json"
        self.links = f"{self.uri}/links.json"
        self.tags = f"{self.uri}/tags.json"
        self.summary = f"{self.uri}/summary.json"
        self.ledger = f"{self.uri}/ledger"
        self.report = f"{self.uri}/report.md"
        self.night = f"{self.uri}/night.json"

    def step(self, number: int) -> StepLayout:
        """Return the paths of step 1, 2, ..."""
        # padded, because names in a store must sort in the order of steps
        return StepLayout(f"{self.uri}/steps/{number:06d}")

    def steps(self, store: Store) -> list[int]:
        """Return the steps that have begun, in order."""
        return [int(name) for name in store.names(f"{self.uri}/steps") if name.isdigit()]


def record_of(store: Store, name: str) -> RunRecord | None:
    """Read a run.json; None if it is missing. Raises Damaged with the remedy."""
    try:
        record: RunRecord | None = store.read_json(RunLayout(name).record)
        return record
    except Damaged as damage:
        raise Damaged(
            f"{damage} Restore it from a copy, or remove it. Then the command that started the run "
            "continues from the published artifacts and logs to a new MLflow run."
        ) from None


def run_records(store: Store) -> Iterator[RunRecord]:
    """Yield the run.json of each run; damaged files are skipped."""
    for name in store.names("runs"):
        # a damaged run must not hide the others
        with suppress(Damaged):
            if record := record_of(store, name):
                yield record


def summary_of(store: Store, name: str) -> Summary | None:
    """Return a finished run's summary.

    A damaged summary is logged and counts as missing, because the run can write it again.
    """
    try:
        summary: Summary | None = store.read_json(RunLayout(name).summary)
        return summary
    except Damaged as damage:
        logger.warning("%s The run counts as unfinished; give its command again.", damage)
        return None


def finished_summary(store: Store, name: str, steps: JSON) -> Summary | None:
    """Return the summary of a run that has done all its `steps`, or None."""
    summary = summary_of(store, name)
    return summary if summary and summary["steps"] == steps else None


def done_by(store: Store, run: str, step: int) -> str:
    """Return the run that did a step (0 is the start): this run, or the origin of a fork."""
    try:
        record = store.read_json(RunLayout(run).record)
    except Damaged:  # the run's own steps need no lookup
        record = None
    fork = record["settings"].get("fork") if record else None
    return done_by(store, fork["run"], step) if fork and step <= fork["step"] else run


def step_layout(store: Store, name: str, step: int) -> StepLayout:
    """Return the paths of a run's step, in the run that did it."""
    return RunLayout(done_by(store, name, step)).step(step)


def shard_uri(folder: str, number: int) -> str:
    """Return the path of a shard in a folder: `runs/demo/steps/000007/rollout-000`."""
    return f"{folder}/rollout-{number:03d}"


class StepMetrics(TypedDict):
    """metrics.json of a step: `{"step": 7, "time_ms": 1763740000000, "metrics": {...}}`."""

    step: int
    time_ms: int
    metrics: Mapping[str, float]


def metrics_of(store: Store, step: StepLayout) -> StepMetrics:
    """Read the metrics.json of a finished step. Raises Damaged if it is missing or damaged."""
    metrics: StepMetrics | None = store.read_json(step.metrics)
    if metrics is None:
        raise Damaged(f"{store.uri}/{step.metrics} is missing.")
    return metrics


def begun_shards(store: Store, folder: str) -> list[str]:
    """Return the shards in a folder in order, including unpublished ones."""
    return [f"{folder}/{name}" for name in store.names(folder) if name.startswith("rollout-")]


def rollouts(scored: Artifact) -> list[Pointer]:
    """Return the rollouts of the episodes in `scored`, in order, from the folder of `scored`."""
    folder = scored.uri.rpartition("/")[0]
    shards = sorted(scored.manifest["inputs"].items())
    return [Pointer(f"{folder}/{name}", digest) for name, digest in shards]
