"""The experiment that a command line names."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from agentfly_core.experiment.checks import check_inputs
from agentfly_core.experiment.context import ExperimentContext
from flows import dvc_outputs
from flows.context import context_of


def context_given(arguments: Namespace) -> ExperimentContext:
    """The experiment that a command is about."""
    return context_of(**flow_arguments(arguments))


def experiment_context(arguments: Namespace) -> ExperimentContext:
    """The same, its model and its data files checked, too."""
    context = context_given(arguments)
    check_inputs(context.science)
    return context


def flow_arguments(arguments: Namespace) -> dict[str, Any]:
    """The same, as a flow takes it."""
    return {
        "experiment": arguments.experiment,
        "overrides": [*dvc_outputs.overrides(arguments.experiment), *arguments.overrides],
        "site": arguments.site,
        "store": arguments.store,
    }
