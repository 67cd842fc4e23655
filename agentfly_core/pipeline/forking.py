"""Forks, runs that go on from a step of another: their settings, what they need of the other run,
and what that keeps for them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.artifacts.run_layout import RunLayout, done_by
from agentfly_core.artifacts.store import Store
from agentfly_core.config.experiment import Fork, Science
from agentfly_core.config.loading import differences
from agentfly_core.formats.checksummed_json import Damaged
from agentfly_core.runs.context import of_run
from agentfly_core.runs.run import Run, record_of, science_of, summary_of

SETTLED = ("model", "warm_start", "fork.run", "fork.step")
ORDER = ("data", "seed", "night", "rollout.problems", "rollout.refills")
"""The settings that a place in the order of problems counts in."""
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """Steps of a run whose learner states, and whose policies' weights, are kept for its forks:
    `Kept(learners={7}, policies={6, 7})`.
    """

    learners: set[int]
    policies: set[int]


def forked(fork: Fork, overrides: Sequence[str]) -> list[str]:
    """What is added to a run's own settings for one that goes on from it; raises ValueError for
    settings of what a fork has behind it.
    """
    for override in overrides:
        key = override.partition("=")[0]
        if any(f"{key}.".startswith(f"{settled}.") for settled in SETTLED) or key == "fork":
            raise ValueError(
                f"Got {override!r}: a fork goes on from the policy of {fork.run}@{fork.step}, and "
                "what that was trained from is behind it. Train another run for that."
            )
    return [f"fork={fork.model_dump_json()}", *overrides]


def require_done(store: Store, fork: Fork) -> None:
    """Raise ValueError for a step that the run, which exists, has not done."""
    if store.holds(RunLayout(done_by(store, fork.run, fork.step)).step(fork.step).policy):
        return
    layout = RunLayout(fork.run)
    done = [step for step in layout.steps(store) if store.holds(layout.step(step).policy)]
    last = f"its last one is {done[-1]}" if done else "it has done none yet"
    raise ValueError(f"The run {fork.run!r} has done no step {fork.step}; {last}.")


def check_start(run: Run) -> None:
    """Raise ValueError where a fork that has not come to its first step lacks what it needs.

    From then on the other run keeps it, which reads the fork's run.json.
    """
    if run.science.fork and run.store.read_json(run.layout.start) is None:
        require_origin(run.store, run.science)


def require_origin(store: Store, science: Science) -> None:
    """Raise ValueError unless a fork that begins finds what it goes on with: the policies, the
    learner state, and its place in the order of problems.
    """
    fork = science.fork
    assert fork is not None
    for step in range(first_policy(fork.step, science.rollout.max_staleness), fork.step + 1):
        of_run(store, f"run:{fork.run}@{step}", "fork")
    _require_same_order(store, fork, science)
    if science.inherits_learner:
        require_learner_state(store, fork)


def first_policy(step: int, staleness: int) -> int:
    """The first step of whose policy a fork from `step` samples, 0 for the start."""
    return max(step - staleness, 0)


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


def kept_for_forks(store: Store, run: str) -> Kept:
    """What the forks of a run need of it: the policies that they start with, and until they have
    finished the learner state as well.
    """
    kept = Kept(set(), set())
    for name in store.names("runs"):
        try:
            record = record_of(store, name)
        except Damaged as damage:
            logger.warning("%s If it is a fork of %s, nothing is kept for it.", damage, run)
            continue
        if record is None or not record["science"].get("fork"):
            continue
        science = science_of(record)
        fork, summary = science.fork, summary_of(store, name)
        assert fork is not None
        first = first_policy(fork.step, science.rollout.max_staleness)
        own = {
            step for step in range(first, fork.step + 1) if done_by(store, fork.run, step) == run
        }
        kept.policies.update(own)
        finished = summary is not None and summary["steps"] == science.steps
        if science.inherits_learner and not finished:
            kept.learners.update(own & {fork.step})
    return kept


def _require_same_order(store: Store, fork: Fork, science: Science) -> None:
    if (origin := record_of(store, fork.run)) is None:
        raise ValueError(f"There is no run.json of {fork.run!r} in {store.uri} to go on from.")
    theirs = Science.restored(origin["science"])
    changed = [
        f"  {change}"
        for change in differences(theirs, science.model_dump(mode="json"))
        if any(f"{change.key}.".startswith(f"{key}.") for key in ORDER)
    ]
    if changed:
        listed = "\n".join(changed)
        raise ValueError(
            f"A fork goes on at the place in the order of problems that {fork.run} had after step "
            f"{fork.step}, and these settings give another order:\n{listed}\nSet them back, or "
            "start a run of its own from that policy, without its optimizer: `agentfly train` "
            f"with model=run:{fork.run}@{fork.step}."
        )


def _learner(store: Store, run: str, step: int) -> str:
    return RunLayout(done_by(store, run, step)).step(step).learner
