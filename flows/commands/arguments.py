"""The arguments that several commands have."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import Any

from agentfly_core.pipeline.checks import check_inputs
from agentfly_core.runs.context import ExperimentContext
from flows import dvc_outputs
from flows.context import context_of

EXPERIMENT = "name of a file in ./conf (quickstart, shop, ...), or a path to your own yaml"
OVERRIDES = (
    "settings that differ from the file, for example "
    "update.learning_rate=3e-4 rollout.group_size=16"
)
SITE = (
    "where it runs: a file in ./conf/site (default: local); "
    "AGENTFLY_<KEY> variables change single settings"
)
STORE = "where runs and artifacts go: a folder (default: .) or s3://bucket/prefix"
RUN = "name of a run, see `agentfly list`"
Command = Callable[[Namespace], int | None]
"""Returns the exit status, or nothing when all went well."""


class Commands:
    """The commands to choose from: `commands.add("list", list_runs, "all runs")` is the parser of a
    new one.
    """

    def __init__(self, parser: ArgumentParser) -> None:
        self._known = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(self, name: str, command: Command, does: str) -> ArgumentParser:
        """A command of this name; `does` is its line of help."""
        parser = self._known.add_parser(
            name, help=does, description=f"{does[0].upper()}{does[1:]}."
        )
        parser.set_defaults(command=command)
        return parser

    def add_experiment(self, name: str, command: Command, does: str) -> ArgumentParser:
        """A command on an experiment with its overrides, a site and a store."""
        parser = self.add(name, command, does)
        parser.add_argument("experiment", metavar="EXPERIMENT", help=EXPERIMENT)
        parser.add_argument("overrides", metavar="key=value", nargs="*", help=OVERRIDES)
        parser.add_argument("--site", default="local", help=SITE)
        parser.add_argument("--store", default="", help=STORE)
        return parser


def positive(text: str) -> int:
    """A number of 1 or more."""
    if (number := int(text)) < 1:
        raise ArgumentTypeError(f"got {number}, expected 1 or more")
    return number


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
