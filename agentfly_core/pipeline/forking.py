"""A run that goes on from a step of another: whether it can, and with which settings it starts."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.artifacts.run_layout import RunLayout, done_by
from agentfly_core.artifacts.store import Store
from agentfly_core.config.experiment import Fork
from agentfly_core.runs.context import of_run

SETTLED = ("model", "warm_start", "fork.run", "fork.step")


def require_learner_state(store: Store, fork: Fork) -> None:
    """Raise ValueError unless the learner state of the step that a fork goes on from is kept."""
    run, step = fork.run, fork.step
    if store.holds(_learner(store, run, step)):
        return
    steps = range(1, max([step, *RunLayout(run).steps(store)]) + 1)
    kept = [str(number) for number in steps if store.holds(_learner(store, run, number))]
    raise ValueError(
        f"The learner state of {run}@{step} is not kept. Steps that have one: "
        f"{', '.join(kept) or 'none'}. Fork from such a step, or start with a fresh optimizer: "
        "fork.optimizer_state=fresh. A run keeps more of them with update.keep_learner."
    )


def forked(store: Store, fork: Fork, overrides: Sequence[str]) -> list[str]:
    """What is added to a run's own settings for one that goes on from it.

    Raises ValueError for a step whose policy or learner state is not there, and for settings of
    what a fork has behind it.
    """
    for override in overrides:
        key = override.partition("=")[0]
        if any(f"{key}.".startswith(f"{settled}.") for settled in SETTLED) or key == "fork":
            raise ValueError(
                f"Got {override!r}: a fork goes on from the policy of {fork.run}@{fork.step}, and "
                "what that was trained from is behind it. Train another run for that."
            )
    of_run(store, f"run:{fork.run}@{fork.step}", "fork")
    return [f"fork={fork.model_dump_json()}", *overrides]


def _learner(store: Store, run: str, step: int) -> str:
    return RunLayout(done_by(store, run, step)).step(step).learner
