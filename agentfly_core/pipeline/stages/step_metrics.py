"""Merge the metrics of the rollout, the scoring and the update of a training step."""

import logging
import shlex
from collections.abc import Mapping, Sequence

from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.pipeline import stop_conditions
from agentfly_core.runs.listing import experiment_of
from agentfly_core.runs.metrics import ZERO_SPREAD, point
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.stage_metrics import combined, measured

logger = logging.getLogger(__name__)
NOTHING = (
    "Step %s trained nothing: no episode had an advantage. Read the episodes of this step with "
    "`agentfly show %s@%s`; %s."
)
OF_RATE = ("kl", "reward_fall")
"""Names of health signs (limits on metrics). If such a limit is violated, the learning rate may be
too high.
"""
SPREAD = "easier or harder problems, a larger rollout.group_size, or a longer warm_start may help"


def log_step(
    run: Run, rollouts: Sequence[Artifact], scored: Artifact, policy: Artifact, step: int
) -> None:
    """Write the metrics.json of a step, and log warnings about health signs.

    A health sign is a condition on a metric, such as a low entropy. The time in the file is the
    time at which the update ended. Episodes are played in batches (shards). Metrics of environments
    are the worst values of all batches. Metrics of agent programs and of forked episodes are summed
    over all batches. Raises GateClosed if a health sign stops the run.
    """
    played = [measured(run.store, rollout) for rollout in rollouts]
    graded, updated = measured(run.store, scored), measured(run.store, policy)
    seconds = {
        "time/rollout": sum(shard.seconds for shard in played),
        "time/swap": sum(shard.metrics["time/swap"] for shard in played),
        "time/score": graded.seconds,
        "time/update": updated.seconds,
    }
    scores = dict(graded.metrics)
    if not run.experiment.algorithm.needs.compares_group:
        # without comparisons in groups, groups with equal rewards are trained, too
        scores.pop(ZERO_SPREAD, None)
    counted = {**combined(played, "gateway/", sum), **combined(played, "branching/", sum)}
    of_shards = {**combined(played, "resources/", max), **counted}
    metrics = {**scores, **updated.metrics, **of_shards, **seconds}
    before = _metrics(run, step - 1)
    metrics |= stop_conditions.reward_fall(metrics, before)
    metrics |= stop_conditions.lasting(run.settings.health, metrics, before)
    # the time of the update, not the current time, because a repeated call must write the same
    # bytes
    run.store.write_json(run.layout.step(step).metrics, point(step, metrics, updated.time_ms))
    taught = updated.metrics["train/optimizer_steps"] or updated.metrics["train/skipped_steps"]
    if run.settings.update.weights and not taught:
        logger.warning(NOTHING, step, run.name, step, _rate_advice(run, step) or SPREAD)
    _warn(run, step, metrics)


def _warn(run: Run, step: int, metrics: Mapping[str, float]) -> None:
    if step == run.settings.own_steps.start and metrics["train/optimizer_steps"]:
        for warning in stop_conditions.unmeasured(run.settings.health, metrics):
            logger.warning("Step %s: %s", step, warning)
    due = stop_conditions.due(run.settings.health, metrics)
    advice = {name: _rate_advice(run, step) or "" for name in OF_RATE if name in due}
    for warning in stop_conditions.warnings(run.settings.health, metrics, advice):
        logger.warning("Step %s: %s.", step, warning)


def _rate_advice(run: Run, step: int) -> str | None:
    """Return advice to lower the learning rate, or None if no update changed the policy too much.

    The advice contains a command that repeats training with a lower learning rate. The command
    forks the run before the last series of updates that changed the policy too much. If no step
    is left to fork from, the command starts a new run.
    """
    settings, updates = run.settings, set[int]()
    for number in range(settings.own_steps.start, step + 1):
        metrics = _metrics(run, number)
        if metrics.get("health/kl"):
            updates.add(number)
        if metrics.get("health/reward_fall"):  # the update that made the policy of this step
            updates.add(number - 1 - settings.rollout.max_staleness)
    if not updates:
        return None
    before = max(updates) - 1
    while before in updates:
        before -= 1
    rate = settings.update.learning_rate
    lower = f"update.learning_rate={rate / 10:g}"
    command = f"agentfly fork {run.name}@{before} {lower}"
    # the run lacks an earlier step from which a fork could start
    if before < max(settings.start_step, 1):
        experiment, changed = experiment_of(run.record)
        others = [one for one in changed if not one.startswith("update.learning_rate=")]
        command = shlex.join(["agentfly", "train", experiment, *others, lower])
    elif not run.store.holds(step_layout(run.store, run.name, before).learner):
        command += " fork.optimizer_state=fresh"
    return f"update.learning_rate is {rate:g}, probably too high; lower it: `{command}`"


def _metrics(run: Run, step: int) -> Mapping[str, float]:
    content = run.store.read_json(step_layout(run.store, run.name, step).metrics)
    metrics: Mapping[str, float] = content["metrics"] if content else {}  # a step that was killed
    return metrics
