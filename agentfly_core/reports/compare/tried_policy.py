"""A policy's stored held-out results, or an error with the command that computes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from agentfly_core.config.experiment import Settings
from agentfly_core.config.loading import flat
from agentfly_core.config.reference import RunPolicy, run_policy
from agentfly_core.config.section import resumable
from agentfly_core.experiment.run_layout import finished_summary
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.experiment.task import goal_of
from agentfly_core.experiment.user_code import modules_of
from agentfly_core.records.run_record import RunRecord
from agentfly_core.reports.compare.seed_intervals import Solved
from agentfly_core.reports.show.sources import evaluations, held_out, solved_held_out
from agentfly_core.runs.listing import continuing, experiment_of, in_store
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON

STEP = "step"
CODE = "code."


@dataclass(frozen=True, slots=True)
class TriedPolicy:
    """A trained or planned policy and its evaluation.

        TriedPolicy("quickstart-1f2e3d4c", 15, 0, 0, {"update.learning_rate": 0.0003, ...},
                    "f491...84", "agentfly_core.rewards.exact:exact", {"add-41-58": 1.0, ...})

    `settings` exclude the seeds of run and data. `problems` is the digest of their file, `goal` the
    reward of solved problems, `solved` each problem's share; empty for a planned policy. `code` has
    digests of the author's functions and classes, `{"my_shop.price": "77b0c2a1"}`.
    """

    run: str
    step: int
    seed: int
    data_seed: int
    settings: Mapping[str, JSON]
    problems: str
    goal: str
    solved: Solved = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The reference in commands."""
        return f"{self.run}@{self.step}"


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
    scored = evaluations(store, record, run, split)(step)
    goal = goal_of(settings.goal, settings.rewards)
    solved = solved_held_out(store, scored, goal) if scored else {}
    if not solved:
        raise ValueError(_not_evaluated(store, record, f"{run}@{step}", split))
    without = planned(settings, run, step, problems_digest(store, data, part))
    return replace(without, solved=solved, code=record["code"].get("parts", {}))


def _not_evaluated(store: Store, record: RunRecord, policy: str, split: str) -> str:
    if split == "validation":
        return f"{policy} was not evaluated on the validation problems: set evaluate.every."
    what, overrides = experiment_of(record)
    words = ("agentfly", "evaluate", what, *overrides, "--policy", f"run:{policy}")
    return (
        f"{policy} was not evaluated on the {split} problems. This does it: "
        f"{in_store(store, *words)}"
    )


def problems_digest(store: Store, data: Pointer, split: str) -> str:
    """The digest of the problems of a split."""
    return store.resolve(data).manifest["files"][f"{split}.parquet"]["sha256"]


def planned(settings: Settings, run: str, step: int, problems: str) -> TriedPolicy:
    """The policy after a step of a run that need not have begun, without an evaluation."""
    # compared policies have the same held-out problems, whatever the seed
    free = {*resumable(Settings), "seed", "data.seed"}
    entries = flat(settings.model_dump(mode="json", exclude={"fork", "code"}))
    code = {f"{CODE}{name}": digest[:8] for name, digest in modules_of(settings.code).items()}
    kept = {
        key: value
        for key, value in entries.items()
        if not any(f"{key}.".startswith(f"{name}.") for name in free)
    }
    origin = None
    if settings.fork:
        fresh = "" if settings.inherits_learner else " fresh"
        origin = f"{settings.fork.run}@{settings.fork.step}{fresh}"
    compared = {**kept, **code, "fork": origin, STEP: step}  # instead of `steps`
    seed, data_seed = settings.seed, settings.of_data.seed
    return TriedPolicy(run, step, seed, data_seed, compared, problems, settings.goal)
