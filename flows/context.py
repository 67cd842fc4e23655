"""The experiment, site and store of a command or flow."""

from __future__ import annotations

from collections.abc import Sequence

from agentfly_core.experiment.context import ExperimentContext
from agentfly_core.pipeline.loop import loading
from flows.store import store_at


def context_of(
    experiment: str, overrides: Sequence[str], site: str, store: str
) -> ExperimentContext:
    """An experiment as resolved, and where it runs; raises ValueError for what cannot be."""
    return loading.load(experiment, overrides, site, store, store_at)
