"""Forks: runs that continue from a step of another run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentfly_core.config.experiment import Fork
from agentfly_core.config.loading import differences
from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.run_layout import RunLayout, record_of, step_layout
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.pipeline.retention import first_policy
from agentfly_core.pipeline.update import require_learner_state
from agentfly_core.runs.run import Run
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON

SETTLED = ("model", "warm_start", "fork.run", "fork.step")
ORDER = ("data", "seed", "night", "rollout.problems", "rollout.refills")
"""Settings that determine the order of problems."""


def forked(fork: Fork, overrides: Sequence[str]) -> list[str]:
    """Overrides of a forked run; raises ValueError for settings that a fork inherits."""
    for override in overrides:
        key = override.partition("=")[0]
        if any(f"{key}.".startswith(f"{settled}.") for settled in SETTLED) or key == "fork":
            raise ValueError(
                f"Got {override!r}, but a fork inherits {key} from {fork.run}@{fork.step}. Train "
                "another run for that."
            )
    return [f"fork={fork.model_dump_json()}", *overrides]


def require_done(store: Store, fork: Fork) -> None:
    """Raise ValueError for a step that the run has not done."""
    if store.holds(step_layout(store, fork.run, fork.step).policy):
        return
    layout = RunLayout(fork.run)
    done = [step for step in layout.steps(store) if store.holds(layout.step(step).policy)]
    last = f"its last one is {done[-1]}" if done else "it has done none yet"
    raise ValueError(f"The run {fork.run!r} has done no step {fork.step}; {last}.")


def check_start(run: Run) -> None:
    """Raise ValueError if a fork before its first step lacks its origin.

    Retention of the origin reads the fork's run.json and keeps its needs.
    """
    settings = run.settings
    if settings.fork and run.store.read_json(run.layout.start) is None:
        dumped, staleness = settings.model_dump(mode="json"), settings.rollout.max_staleness
        require_origin(run.store, settings.fork, staleness, dumped)


def require_origin(
    store: Store, fork: Fork, max_staleness: int, settings: Mapping[str, JSON]
) -> None:
    """Raise ValueError unless a new fork finds the policies and the learner state of its origin,
    and the same order of problems.
    """
    for step in range(first_policy(fork.step, max_staleness), fork.step + 1):
        of_run(store, RunPolicy(fork.run, step), "fork")
    if (origin := record_of(store, fork.run)) is None:
        raise ValueError(f"There is no run.json of {fork.run!r} in {store.uri} to continue from.")
    changed = [
        f"  {change}"
        for change in differences(origin["settings"], settings)
        if any(f"{change.key}.".startswith(f"{key}.") for key in ORDER)
    ]
    if changed:
        listed = "\n".join(changed)
        raise ValueError(
            f"A fork continues the order of problems of {fork.run} after step {fork.step}, and "
            f"these settings give another order:\n{listed}\nSet them back, or train a new run from "
            f"that policy, without its optimizer: model=run:{fork.run}@{fork.step}."
        )
    if fork.optimizer_state == "kept":
        require_learner_state(store, fork)
