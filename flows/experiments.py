"""Load the experiment of a command or flow, with its site (machine settings) and its store."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentfly_core.experiment.checks import check_inputs
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.pipeline.loop import loading
from flows.store import store_at


def load_experiment(experiment: str, overrides: Sequence[str], site: str, store: str) -> Experiment:
    """Load an experiment with its site (machine settings) and its store.

    `overrides` are settings such as "update.learning_rate=3e-4". Raises ValueError for wrong
    settings.
    """
    return loading.load(experiment, overrides, site, store, store_at, workers=1)


def load_checked(arguments: Mapping[str, Any]) -> Experiment:
    """Load an experiment, and check that its model and its data files exist.

    `arguments` are the arguments of `load_experiment`. Raises ValueError if a setting is wrong,
    or if the model or a data file cannot be used.
    """
    experiment = load_experiment(**arguments)
    check_inputs(experiment.settings)
    return experiment
