"""The paths of runs and plays in a store, and functions that read the records of a run. A play is a
set of episodes that were played without training.
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, TypedDict

from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON

PLAYS = "plays"
logger = logging.getLogger(__name__)


class EpisodeLayout:
    """The paths of episodes that were played together, for example in a step.

    `scored` is the artifact with the scores of all episodes. The manifest of this artifact lists
    the shards (batches) of the episodes as inputs. The function `rollouts` returns these shards.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.scored = f"{uri}/scored"

    def rollout(self, shard: int) -> str:
        """Return the path of the episodes of one shard (batch)."""
        return shard_uri(self.uri, shard)


class StepLayout(EpisodeLayout):
    """The paths of a step: `StepLayout("runs/demo/steps/000007").policy` is
    `runs/demo/steps/000007/policy`.

    - `policy`: the policy that the step published
    - `learner`: the optimizer state of this policy
    - `memory`: the files that agents can read in episodes with this policy
    - `metrics`: the JSON file with the metrics of the step
    """

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.memory = f"{uri}/memory"
        self.policy = f"{uri}/policy"
        self.learner = f"{uri}/learner"
        self.metrics = f"{uri}/metrics.json"


class PlayLayout(EpisodeLayout):
    """The paths of episodes that a command such as `agentfly play` has stored:
    `PlayLayout("quickstart-3").scored` is `plays/quickstart-3/scored`.

    `record` is the path of play.json, which contains a PlayRecord. `tokenizer` is the path of the
    tokenizer that decodes the tokens of the episodes.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{PLAYS}/{name}")
        self.record = f"{self.uri}/play.json"
        self.tokenizer = f"{self.uri}/tokenizer"


def next_play(store: Store, experiment: str) -> str:
    """Return a free name for the episodes of the next `agentfly play` of an experiment.

    In an empty store, `next_play(store, "quickstart")` is `quickstart-1`.
    """
    taken = set(store.names(PLAYS))
    return next(name for n in count(1) if (name := f"{experiment}-{n}") not in taken)


class RunLayout:
    """The paths of a run: `RunLayout("demo").step(7).policy` is `runs/demo/steps/000007/policy`.

    - `record`: run.json, with the settings of the run
    - `start`: a pointer to the policy before step 1
    - `links`: the ids of the run in other systems, such as MLflow
    - `summary`: the result of a finished run
    - `ledger`: the table of played problems of a finished run
    - `report`: the report of a nightly run in Markdown
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

    def step(self, number: int) -> StepLayout:
        """Return the paths of the step `number` (1, 2, ...)."""
        # padded, because names in a store must sort in the order of steps
        return StepLayout(f"{self.uri}/steps/{number:06d}")

    def steps(self, store: Store) -> list[int]:
        """Return the numbers of the steps that have begun, in order."""
        return [int(name) for name in store.names(f"{self.uri}/steps") if name.isdigit()]


def record_of(store: Store, name: str) -> RunRecord | None:
    """Read the run.json of a run, or return None if the file is missing.

    Raises Damaged if the file was changed. The message contains instructions for the user.
    """
    try:
        record: RunRecord | None = store.read_json(RunLayout(name).record)
        return record
    except Damaged as damage:
        raise Damaged(
            f"{damage} Restore the file from a copy. Alternatively, remove it, and repeat the "
            "command that started the run: it reuses the published artifacts, in a new MLflow run."
        ) from None


def run_records(store: Store) -> Iterator[RunRecord]:
    """Yield the content of the run.json of each run. Damaged files are skipped."""
    for name in store.names("runs"):
        # a damaged run must not hide the others
        with suppress(Damaged):
            if record := record_of(store, name):
                yield record


def undamaged(store: Store, uri: str, loss: str) -> Any:
    """Return the content of an optional JSON file of a run, or None if the file is missing.

    If the file is damaged, a warning is logged, and None is returned. `loss` is a sentence for the
    warning, such as "The tags of the run are lost."
    """
    try:
        return store.read_json(uri)
    except Damaged as damage:
        logger.warning("%s %s", damage, loss)
        return None


def summary_of(store: Store, name: str) -> Summary | None:
    """Return the summary of a finished run, or None if the summary is missing.

    If the summary is damaged, a warning is logged and None is returned, because the run can write
    the summary again.
    """
    loss = "The run counts as unfinished; repeat the command that started the run."
    summary: Summary | None = undamaged(store, RunLayout(name).summary, loss)
    return summary


def finished_summary(store: Store, name: str, steps: JSON) -> Summary | None:
    """Return the summary of a run if the number of finished steps equals `steps`, else None."""
    summary = summary_of(store, name)
    return summary if summary and summary["steps"] == steps else None


def done_by(store: Store, run: str, step: int) -> str:
    """Return the name of the run in which a step of `run` was trained.

    A fork is a run that continues from a step of another run. The other run has trained the steps
    up to the fork point, and the fork has trained all later steps. Step 0 is the start of a run.
    """
    try:
        record = store.read_json(RunLayout(run).record)
    except Damaged:  # the run's own steps need no lookup
        record = None
    fork = record["settings"].get("fork") if record else None
    return done_by(store, fork["run"], step) if fork and step <= fork["step"] else run


def step_layout(store: Store, name: str, step: int) -> StepLayout:
    """Return the paths of a run's step.

    If the run is a fork, steps before the fork have their paths in the original run.
    """
    return RunLayout(done_by(store, name, step)).step(step)


def shard_uri(folder: str, number: int) -> str:
    """Return the path of a shard (batch of episodes) in a folder:
    `runs/demo/steps/000007/rollout-000`.
    """
    return f"{folder}/rollout-{number:03d}"


class StepMetrics(TypedDict):
    """The contents of a step's metrics.json:
    `{"step": 7, "time_ms": 1763740000000, "metrics": {...}}`.
    """

    step: int
    time_ms: int
    metrics: Mapping[str, float]


def metrics_of(store: Store, step: StepLayout) -> StepMetrics:
    """Read the metrics.json of a finished step. Raises Damaged for a missing or damaged file."""
    metrics: StepMetrics | None = store.read_json(step.metrics)
    if metrics is None:
        raise Damaged(
            f"{store.uri}/{step.metrics} is missing. Restore the file from a copy of the store."
        )
    return metrics


def begun_shards(store: Store, folder: str) -> list[str]:
    """Return the paths of the shards (batches of episodes) in a folder, in order.

    Unfinished shards are included.
    """
    return [f"{folder}/{name}" for name in store.names(folder) if name.startswith("rollout-")]


def rollouts(scored: Artifact) -> list[Pointer]:
    """Return the shards (batches of episodes) whose scores are in `scored`, sorted by name.

    The shards are in the same folder as `scored`.
    """
    folder = scored.uri.rpartition("/")[0]
    shards = sorted(scored.manifest["inputs"].items())
    return [Pointer(f"{folder}/{name}", digest) for name, digest in shards]
