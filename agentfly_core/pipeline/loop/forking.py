"""Forks: runs that continue from a step of another run. This other run is the fork's origin."""

from collections.abc import Sequence
from typing import get_args

from agentfly_core.config.experiment import Adapter, Fork, Settings
from agentfly_core.config.loading import differences
from agentfly_core.config.reference import RunPolicy, run_step
from agentfly_core.experiment.run_layout import RunLayout, record_of
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.pipeline.retention import first_policy
from agentfly_core.pipeline.stages.policy_update import require_learner_state
from agentfly_core.rl.interface import Algorithm, Critic
from agentfly_core.rl.kl import AdaptiveKL, RewardKL
from agentfly_core.runs.listing import experiment_of, run_named
from agentfly_core.runs.run import Run, known_run, recorded_settings
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.store.store import Store

# settings that a fork inherits; a changed model or warm start would be ignored, because a fork
# starts from a policy of its origin
SETTLED = ("model", "warm_start", "fork.run", "fork.step")
ORDER = ("data", "seed", "night", "rollout.problems", "rollout.refills")
"""Settings that determine which problems are played in which step."""


def forked(fork: Fork, overrides: Sequence[str]) -> list[str]:
    """Return the overrides of a forked run: the setting `fork`, followed by `overrides`.

    Raises ValueError if an override changes a setting that a fork inherits.
    """
    for override in overrides:
        key = override.partition("=")[0]
        if any(f"{key}.".startswith(f"{settled}.") for settled in SETTLED) or key == "fork":
            raise ValueError(
                f"Got {override!r}, but a fork inherits {key} from {fork.run}@{fork.step}. To "
                f"change {key}, train a new run instead of a fork."
            )
    return [f"fork={fork.model_dump_json()}", *overrides]


def forked_run(
    store: Store, origin: str, overrides: Sequence[str]
) -> tuple[str, tuple[str, ...], str]:
    """Return what a new run needs to continue from `origin`, a reference RUN@STEP.

    The result is the name of the experiment, the overrides, and the name of the origin's site (the
    settings of the machine). Raises ValueError if `origin` is not RUN@STEP with a step of 1 or
    more, if the policy of the step is missing, or if an override changes a setting that a fork
    inherits.
    """
    policy = run_step(f"run:{run_named(store, origin)}")
    if policy is None or policy.step == 0:
        raise ValueError(
            f"Got {origin!r}, expected RUN@STEP with a step of 1 or more, such as "
            "quickstart-1f2e3d4c@7."
        )
    record = known_run(store, policy.run)
    of_run(store, policy, "RUN@STEP")
    experiment, own = experiment_of(record)
    fork = Fork(run=policy.run, step=policy.step)
    return experiment, (*own, *forked(fork, overrides)), record["site"]["name"]


def check_start(run: Run | RunRequest) -> None:
    """Raise ValueError if a new fork cannot continue from its origin; see `require_origin`.

    The origin is the run that the fork continues. A fork that has already started is not checked,
    because a run keeps the policies and learner states that its started forks need.
    """
    store, settings = run.experiment.store, run.experiment.settings
    if settings.fork and store.read_json(RunLayout(run.name).start) is None:
        require_origin(store, settings, settings.fork)


def require_origin(store: Store, settings: Settings, fork: Fork) -> None:
    """Raise ValueError if a new fork cannot continue from its origin, the run `fork.run`.

    The error is raised in these cases:

    - A policy from which the fork samples in its first steps is missing.
    - The run.json of the origin is missing.
    - `settings` would change the order of the problems.
    - The fork inherits the optimizer state, but the learner state is missing or does not fit
      `settings`.
    """
    # with staleness (sampling from older policies), the first steps also use policies before
    # `fork.step`
    for step in range(first_policy(fork.step, settings.rollout.max_staleness), fork.step + 1):
        of_run(store, RunPolicy(fork.run, step), "fork")
    if (origin := record_of(store, fork.run)) is None:
        raise ValueError(
            f"The run.json of the run {fork.run!r} is missing in {store.uri}. Restore the file, or "
            "fork another run."
        )
    changed = [
        f"  {change}"
        for change in differences(origin["settings"], settings.model_dump(mode="json"))
        if any(f"{change.key}.".startswith(f"{key}.") for key in ORDER)
    ]
    if changed:
        listed = "\n".join(changed)
        raise ValueError(
            f"A fork plays the problems in the order of {fork.run}, but these settings would "
            f"change the order:\n{listed}\nRestore these settings. Or train a new run, with a "
            f"fresh optimizer, from the policy of step {fork.step}: "
            f"model=run:{fork.run}@{fork.step}."
        )
    if settings.inherits_learner:
        require_learner_state(store, fork)
        began = recorded_settings(origin)
        added = None if began.adapter else settings.adapter
        _require_fitting(began.algorithm.make(), settings.algorithm.make(), added)


def _require_fitting(old: Algorithm, new: Algorithm, added: Adapter | None) -> None:
    """Raise ValueError if a fork cannot continue with the learner state of its origin.

    `old` is the algorithm of the origin, and `new` the algorithm of the fork. `added` is an adapter
    that only the fork has. An added critic or adapter is an error, because the learner state lacks
    the weights. A changed weight of an adaptive KL penalty is an error, because the learner state
    contains the adapted weight.
    """
    before, after = (getattr(algorithm, "kl", None) for algorithm in (old, new))
    critics = get_args(Critic)  # each has the weights of the critics before it
    if added:
        changed = f"adapter: got {added!r}, expected null"
    elif critics.index(new.needs.critic) > critics.index(old.needs.critic):
        changed = f"algorithm: got the critic {new.needs.critic}, expected {old.needs.critic}"
    elif (
        isinstance(before, RewardKL)
        and isinstance(after, AdaptiveKL)
        and before.weight != after.weight
    ):
        changed = f"algorithm.kl.weight: got {after.weight:g}, expected {before.weight:g}"
    else:
        return
    raise ValueError(
        f"{changed}, because the fork continues with the learner state of the original run. "
        "Restore the value, or start with a fresh optimizer: fork.optimizer_state=fresh."
    )
