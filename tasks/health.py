"""The health of a run: signs that training goes wrong are told, and stop it where the experiment says so."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from agentfly_core.artifacts import keys
from agentfly_core.pipeline import health
from agentfly_core.runs.run import Run
from tasks.stage import stage

logger = logging.getLogger(__name__)


@stage("look at the health of step {step}")
def look_at_health(run: Run, step: int) -> None:
    """Warn of the signs that a step's metrics.json tells of; raises GateClosed where one shall stop the run."""
    metrics = _metrics(run, step)
    mistyped = health.unmeasured(run.science.health, metrics)
    if mistyped and _learned(metrics) and not any(_learned(_metrics(run, k)) for k in range(1, step)):
        for warning in mistyped:
            logger.warning("Step %s: %s", step, warning)
    for warning in health.warnings(run.science.health, metrics):
        logger.warning("Step %s: %s.", step, warning)


def _metrics(run: Run, step: int) -> Mapping[str, float]:
    found: Mapping[str, float] = run.store.read_json(f"{keys.of_step(run.name, step)}/metrics.json")["metrics"]
    return found


def _learned(metrics: Mapping[str, float]) -> bool:
    """Whether a step measured all that updates measure."""
    return metrics["train/optimizer_steps"] > 0
