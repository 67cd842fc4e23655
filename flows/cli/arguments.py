"""The parsers of the commands, and the arguments that several commands have."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable

from flows.cli.table import COMMANDS

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
    """The parsers of commands: `commands.add("list", list_runs)` adds one."""

    def __init__(self, parser: ArgumentParser) -> None:
        self._commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(self, name: str, command: Command) -> ArgumentParser:
        """Add a command of the table."""
        does = COMMANDS[name].does
        parser = self._commands.add_parser(
            name, help=does, description=f"{does[0].upper()}{does[1:]}."
        )
        parser.set_defaults(command=command)
        return parser

    def add_experiment(self, name: str, command: Command) -> ArgumentParser:
        """Add a command on an experiment with its overrides, a site and a store."""
        parser = self.add(name, command)
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
