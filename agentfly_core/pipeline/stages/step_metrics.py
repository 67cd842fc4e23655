"""Metrics of a step, merged from its stages."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from agentfly_core.experiment.run_layout import step_layout
from agentfly_core.pipeline import stop_conditions
from agentfly_core.runs.metrics import ZERO_SPREAD, point
from agentfly_core.runs.run import Run
from agentfly_core.store.artifact import Artifact
from agentfly_core.store.stage_metrics import measured, worst

logger = logging.getLogger(__name__)
NOTHING = (
    "Step %s taught nothing: no episode had an advantage. Look at it with `agentfly show %s@%s`; "
    "easier or harder problems, a larger rollout.group_size, or a warm_start help, and after a "
    "fall of the reward a lower update.learning_rate."
)


def log_step(
    run: Run, rollouts: Sequence[Artifact], scored: Artifact, policy: Artifact, step: int
) -> None:
    """Write the step's metrics.json with the time at which its update ended, and warn of signs.

    Environments count with the metrics of the worst shard. Raises GateClosed if a health sign
    stops the run.
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
        scores.pop(ZERO_SPREAD, None)
    metrics = {**scores, **updated.metrics, **worst(played, "resources/"), **seconds}
    earlier = run.store.read_json(step_layout(run.store, run.name, step - 1).metrics)
    before: Mapping[str, float] = earlier["metrics"] if earlier else {}  # of a step cut by a kill
    metrics |= stop_conditions.reward_fall(metrics, before)
    metrics |= stop_conditions.lasting(run.settings.health, metrics, before)
    run.store.write_json(run.layout.step(step).metrics, point(step, metrics, updated.time_ms))
    if not (updated.metrics["train/optimizer_steps"] or updated.metrics["train/skipped_steps"]):
        logger.warning(NOTHING, step, run.name, step)
    _warn(run, step, metrics)


def _warn(run: Run, step: int, metrics: Mapping[str, float]) -> None:
    if step == run.settings.own_steps.start and metrics["train/optimizer_steps"]:
        for warning in stop_conditions.unmeasured(run.settings.health, metrics):
            logger.warning("Step %s: %s", step, warning)
    for warning in stop_conditions.warnings(run.settings.health, metrics):
        logger.warning("Step %s: %s.", step, warning)
