"""The experiment, site and store of a command or flow."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentfly_core.experiment.checks import check_inputs
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.loop import loading
from flows.store import store_at


def load_experiment(experiment: str, overrides: Sequence[str], site: str, store: str) -> Experiment:
    """Load and check an experiment with its site and its store. Raises ValueError."""
    return loading.load(experiment, overrides, site, store, store_at, workers=1)


def load_checked(arguments: Mapping[str, Any]) -> Experiment:
    """Load an experiment, and check its model and its data files. Raises ValueError."""
    experiment = load_experiment(**arguments)
    check_inputs(experiment.settings)
    return experiment
