"""The health of a run: signs that training goes wrong are told, and stop it where the experiment says so."""

from __future__ import annotations

import logging

from agentfly_core import health, slots
from agentfly_core.run import Run
from tasks.stage import stage

logger = logging.getLogger(__name__)


@stage("look at the health of step {step}")
def look_at_health(run: Run, step: int) -> None:
    """Warn of the signs that a step's metrics.json tells of; raises GateClosed where one shall stop the run."""
    metrics = run.store.read_json(f"{slots.of_step(run.name, step)}/metrics.json")["metrics"]
    learned = step == 1 and metrics["train/optimizer_steps"] > 0
    for warning in health.unmeasured(run.science.health, metrics) if learned else []:
        logger.warning("Step %s: %s", step, warning)
    for warning in health.warnings(run.science.health, metrics):
        logger.warning("Step %s: %s.", step, warning)
