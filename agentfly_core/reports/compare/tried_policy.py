"""A policy's stored held-out results, or an error with the command that computes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentfly_core.config.experiment import Settings
from agentfly_core.config.loading import flat
from agentfly_core.config.reference import RunPolicy, run_policy
from agentfly_core.config.section import resumable
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import finished_summary
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.experiment.task import goal_of
from agentfly_core.experiment.user_code import Code
from agentfly_core.records.run_record import RunRecord
from agentfly_core.reports.compare.seed_intervals import Solved
from agentfly_core.reports.show.sources import evaluations, held_out, solved_held_out
from agentfly_core.runs.listing import continuing, experiment_of, in_store
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON

STEP = "step"


@dataclass(frozen=True, slots=True)
class Trial:
    """A trained or planned policy and its evaluation.

        Trial("quickstart-1f2e3d4c", 15, 0, 0, {"update.learning_rate": 0.0003, ..., "step": 15},
              "f491...84", "agentfly_core.rewards.exact:exact")

    `settings` exclude the seeds of run and data. `problems` is the digest of their file, `goal` the
    reward of solved problems.
    """

    run: str
    step: int
    seed: int
    data_seed: int
    settings: Mapping[str, JSON]
    problems: str
    goal: str

    @property
    def name(self) -> str:
        """The reference in commands."""
        return f"{self.run}@{self.step}"


@dataclass(frozen=True, slots=True)
class TriedPolicy(Trial):
    """A policy with its solved share of each problem: `TriedPolicy("quickstart-1f2e3d4c", ...,
    {"add-41-58": 1.0, ...})`.
    """

    solved: Solved


def planned(experiment: Experiment, run: str, data: Pointer) -> Trial:
    """The last policy of a planned run, on its test problems."""
    problems = _problems(experiment.store, data, "test")
    return Trial(
        *_trial(experiment.settings, experiment.code, run, experiment.settings.steps, problems)
    )


def tried(store: Store, reference: str, split: str) -> TriedPolicy:
    """The policy of NAME, a finished run's last, or NAME@STEP on a split or evaluate.datasets.

    Raises ValueError if it is missing, not finished or not evaluated.
    """
    policy = run_policy(reference)
    run = policy.run
    record = known_run(store, run)
    settings = recorded_settings(record)
    step = policy.step if isinstance(policy, RunPolicy) else settings.steps
    if not isinstance(policy, RunPolicy) and finished_summary(store, run, step) is None:
        raise ValueError(
            f"The run {run!r} is not finished. This finishes it: {continuing(store, run, record)}"
        )
    policy_of(store, run, step)  # raises for a missing step
    _, data, part = held_out(store, record, split)
    if not data.uri:
        raise ValueError(
            f"The dataset of {run!r} is missing in {store.uri}, or its files have changed: restore "
            "them."
        )
    scored = evaluations(store, record, run, split)(step)
    goal = goal_of(settings.goal, settings.rewards)
    solved = solved_held_out(store, scored, goal) if scored else {}
    if not solved:
        raise ValueError(_not_evaluated(store, record, f"{run}@{step}", split))
    code, problems = record["code"]["files"], _problems(store, data, part)
    return TriedPolicy(*_trial(settings, code, run, step, problems), solved)


def _not_evaluated(store: Store, record: RunRecord, policy: str, split: str) -> str:
    if split == "validation":
        return f"{policy} was not evaluated on the validation problems: set evaluate.every."
    what, overrides = experiment_of(record)
    words = ("agentfly", "evaluate", what, *overrides, "--policy", f"run:{policy}")
    return (
        f"{policy} was not evaluated on the {split} problems. This does it: "
        f"{in_store(store, *words)}"
    )


def _problems(store: Store, data: Pointer, split: str) -> str:
    return store.resolve(data).manifest["files"][f"{split}.parquet"]["sha256"]


def _trial(
    settings: Settings, code: Code, run: str, step: int, problems: str
) -> tuple[str, int, int, int, Mapping[str, JSON], str, str]:
    """The fields of a Trial."""
    # compared policies have the same held-out problems, whatever the seed
    free = {*resumable(Settings), "seed", "data.seed"}
    entries = flat(settings.model_dump(mode="json", exclude={"fork", "code"}))
    # an edit is shown as code.my_shop/prices.py=9f2c1b3a
    files = {f"code.{file}": sha256[:8] for of in code.values() for file, sha256 in of.items()}
    kept = {
        key: value
        for key, value in entries.items()
        if not any(f"{key}.".startswith(f"{name}.") for name in free)
    }
    origin = None
    if settings.fork:
        fresh = "" if settings.inherits_learner else " fresh"
        origin = f"{settings.fork.run}@{settings.fork.step}{fresh}"
    compared = {**kept, **files, "fork": origin, STEP: step}  # instead of `steps`
    return run, step, settings.seed, settings.of_data.seed, compared, problems, settings.goal
