"""A finished run and the same run built again in another store: which of its artifacts agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentfly_core.experiment.context import policy_of
from agentfly_core.experiment.continuing import refuse_other_stages
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout, rollouts, summary_of
from agentfly_core.runs.run import context_of, known_run
from agentfly_core.runs.summary import StagesBefore, stored_stages
from agentfly_core.store.manifest import OUTSIDE_DIGEST
from agentfly_core.store.store import ArtifactKey, Pointer, Store


@dataclass(frozen=True)
class ArtifactVerdict:
    """What became of one artifact of a run when it was built again.

    `ArtifactVerdict("step 3 rollout 1", "runs/demo/steps/000003/rollout-001",
    ("episodes.parquet",))`; `differing` are the files with other bytes, None where it was
    not built.
    """

    what: str
    uri: str
    differing: tuple[str, ...] | None

    @property
    def agrees(self) -> bool:
        """Whether it is the same to the byte."""
        return self.differing == ()

    @property
    def words(self) -> str:
        """The verdict for people."""
        if self.agrees:
            return "agrees"
        files = self.differing
        return f"differs in {', '.join(files)}" if files else "was not built"


def verdicts(store: Store, once: Mapping[str, Pointer], rebuilt: Store) -> list[ArtifactVerdict]:
    """Of each artifact that was `made` once, how it came out in the store `rebuilt`."""
    return [
        ArtifactVerdict(what, artifact.uri, differing(store, artifact, rebuilt))
        for what, artifact in once.items()
    ]


def made(store: Store, name: str) -> Mapping[str, Pointer]:
    """The artifacts of a finished run by what people call them: `{"dataset": ..., "model": ...,
    "step 1 rollout 0": ...}`; raises ValueError for a run that is not finished, of stages of
    another version, or of which one is gone.
    """
    record = known_run(store, name)
    if summary_of(store, name) is None:
        raise ValueError(f"The run {name!r} is not finished: `agentfly list` shows what ends it.")
    refuse_other_stages(name, record)
    context = context_of(record, store)
    science, keys = context.science, StageKeys(context.science)
    try:
        named = [*_before(stored_stages(context, context.parent))]
        for step in science.own_steps:
            named += _of_step(store, name, step)
        data = store.artifact(keys.prepare().uri)
        # the first policy and the last
        for step in (science.start_step, science.steps):
            policy = policy_of(store, name, step)
            shards = context.evaluation_keys(policy, data, "test")
            named += _of_evaluation(store, keys, step, shards)
        return dict(named)
    except FileNotFoundError as error:
        raise ValueError(
            f"{error} It belongs to what {name} made, and was removed: "
            "the run cannot be compared with one that is built again."
        ) from None


def _before(stages: StagesBefore) -> Iterator[tuple[str, Pointer]]:
    yield "dataset", stages["prepare"][0]
    for model in stages.get("model", ()):
        yield "model", model
    for number, artifact in enumerate(stages.get("warm_start", ())):
        yield (f"warm start {number}" if number else "demonstrations"), artifact


def _of_step(store: Store, name: str, number: int) -> Iterator[tuple[str, Pointer]]:
    step = RunLayout(name).step(number)
    scored = store.artifact(step.scored)
    for shard, rollout in enumerate(rollouts(scored)):
        yield f"step {number} rollout {shard}", rollout
    yield f"step {number} scores", scored
    yield f"step {number} policy", store.artifact(step.policy)


def _of_evaluation(
    store: Store, keys: StageKeys, number: int, shards: Sequence[ArtifactKey]
) -> Iterator[tuple[str, Pointer]]:
    played = [store.artifact(shard.uri) for shard in shards]
    for shard, episodes in enumerate(played):
        yield f"evaluation of step {number} rollout {shard}", episodes
    yield f"evaluation of step {number} scores", store.artifact(keys.scored(played).uri)


def differing(store: Store, artifact: Pointer, rebuilt: Store) -> tuple[str, ...] | None:
    """The files of an artifact that another store has otherwise, without those that only say how
    long it took.
    """
    one, other = store.get(artifact.uri), rebuilt.get(artifact.uri)
    if one is None or other is None:
        return None
    old, new = ({n: e["sha256"] for n, e in m.manifest["files"].items()} for m in (one, other))
    files = sorted({*old, *new} - OUTSIDE_DIGEST)
    return tuple(file for file in files if old.get(file) != new.get(file))
