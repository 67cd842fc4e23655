"""What a run's policy did on held-out problems, or why that is not known and what to do then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentfly_core.artifacts import keys
from agentfly_core.artifacts.store import Artifact, Store
from agentfly_core.config.experiment import Science, resumable, step_named
from agentfly_core.config.loading import flat
from agentfly_core.config.site import Site
from agentfly_core.formats.json_value import JSON
from agentfly_core.formats.text import did_you_mean
from agentfly_core.records.run_record import RunRecord
from agentfly_core.reports.comparing.seed_intervals import Solved
from agentfly_core.reports.held_out import evaluated_episodes, is_evaluated
from agentfly_core.runs.context import ExperimentContext, policy_of, resolve
from agentfly_core.runs.listing import continuing, experiment_of, in_store
from agentfly_core.runs.metrics import solved_by_problem
from agentfly_core.runs.run import record_of, summary_of

STEP = "step"


@dataclass(frozen=True, slots=True)
class TriedPolicy:
    """The policy of a run's step, and the share of each held-out problem's episodes that it solved.

        TriedPolicy("quickstart-1f2e3d4c", 15, 0, {"update.learning_rate": 0.0003, ..., "step": 15},
                    "f491...84", "agentfly_core.rewards.exact:exact", {"add-41-58": 1.0, ...})

    `settings` are those that a result depends on, without the `seed`, and the `step`. `dataset` is
    the digest of what the problems are part of, `goal` the reward that says solved.
    """

    run: str
    step: int
    seed: int
    settings: Mapping[str, JSON]
    dataset: str
    goal: str
    solved: Solved

    @property
    def name(self) -> str:
        """As a command names it."""
        return f"{self.run}@{self.step}"


def tried(store: Store, reference: str, split: str) -> TriedPolicy:
    """The policy that NAME, a finished run's last, or NAME@STEP names, with or without `run:`.

    Raises ValueError for one that is not there, not finished, or was not evaluated on the split.
    """
    run, step = step_named(f"run:{reference.removeprefix('run:')}") or (
        reference.removeprefix("run:"),
        None,
    )
    if (record := record_of(store, run)) is None:
        hint = did_you_mean(run, store.names("runs"))
        raise ValueError(f"There is no run {run!r} in {store.uri}.{hint}")
    science = Science.model_validate(Science.restored(record["science"]))
    if step is None:
        _require_finished(store, run, record, science)
        step = science.steps
    policy = policy_of(store, run, step)

    place = Site(), store
    context = ExperimentContext(record["experiment"], resolve(science), record["origin"], *place)
    data = _data_of(context, run, record)
    if not is_evaluated(context, policy, data, split):
        raise ValueError(_not_evaluated(store, record, f"{run}@{step}", split))
    episodes, scores = evaluated_episodes(context, policy, data, split)
    solved = solved_by_problem(episodes, scores, context.resolved.goal)
    settings = _settings(science, step)
    return TriedPolicy(run, step, science.seed, settings, data.digest, science.goal, solved)


def _require_finished(store: Store, run: str, record: RunRecord, science: Science) -> None:
    summary = summary_of(store, run)
    if summary is None or summary["steps"] != science.steps:
        raise ValueError(
            f"The run {run!r} is not finished, so that its last policy is not evaluated. This "
            f"finishes it: {continuing(store, run, record)}"
        )


def _data_of(context: ExperimentContext, run: str, record: RunRecord) -> Artifact:
    target, store = keys.prepare(context.science), context.store
    data = store.artifact(target.uri) if store.manifest(target.uri) else None
    if data is None or data.digest != record.get("dataset_digest", data.digest):
        raise ValueError(
            f"The dataset of {run!r} is not in {store.uri}, or the files that it was made of have "
            "changed, so what was played on it is not found. Restore the files."
        )
    return data


def _not_evaluated(store: Store, record: RunRecord, policy: str, split: str) -> str:
    if split != "test":
        return (
            f"{policy} was not evaluated on the {split} problems. A run does that each "
            "`evaluate.every` steps, if it is asked to; the test problems are played after the "
            "last step, and by `agentfly evaluate`."
        )
    what, overrides = experiment_of(record)
    words = ("agentfly", "evaluate", what, *overrides, "--policy", f"run:{policy}")
    return (
        f"{policy} was not evaluated on the test problems. This does it: {in_store(store, *words)}"
    )


def _settings(science: Science, step: int) -> dict[str, JSON]:
    """What a policy's success may depend on, but for the seed: the step stands for `steps`."""
    # the problems are the same where two are compared, whichever seed made them
    free = {*resumable(Science), "seed", "data.seed"}
    said = flat(science.model_dump(mode="json", exclude={"fork"}))
    kept = {
        key: value for key, value in said.items() if free.isdisjoint((key, key.partition(".")[0]))
    }
    return {**kept, "fork": _origin(science), STEP: step}


def _origin(science: Science) -> str | None:
    """What a fork goes on from: `mine@7`, and `mine@7 fresh` without its learner state."""
    if science.fork is None:
        return None
    fresh = "" if science.inherits_learner else " fresh"
    return f"{science.fork.run}@{science.fork.step}{fresh}"
