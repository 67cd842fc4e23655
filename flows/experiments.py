"""The experiment, site and store of a command or flow."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.loop import loading
from flows.store import store_at


def load_experiment(experiment: str, overrides: Sequence[str], site: str, store: str) -> Experiment:
    """Load and check an experiment, with its site and its store; raises ValueError."""
    return loading.load(experiment, overrides, site, store, store_at, workers=1)
