"""The command line: `agentfly COMMAND ...`, also `python -m flows COMMAND ...`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from agentfly_core.formats.text import redact
from agentfly_core.system.module_search import import_ours
from flows.commands.arguments import Command, Commands
from flows.commands.comparing import add_comparing
from flows.commands.episodes import add_episodes, add_scoring
from flows.commands.export import add_export
from flows.commands.machine import add_checks, add_prefect
from flows.commands.nights import add_nights
from flows.commands.orchestration import MISTAKES, message
from flows.commands.play import add_play
from flows.commands.project import add_project
from flows.commands.runs import add_listing, add_opening
from flows.commands.sharing import add_sharing
from flows.commands.stages import add_stages
from flows.commands.training import add_forking, add_training
from flows.commands.up import add_up
from flows.local.prefect_server import leave
from flows.local.terminal import visible_output

EXAMPLES = """
examples:
  agentfly train quickstart                     train; run it again after any interruption and \
it continues
  agentfly train quickstart seed=1              another seed is another run
  agentfly train quickstart --run mine steps=30 continue the run 'mine' up to step 30
  agentfly play quickstart --policy oracle      play problems without training, and look at them
  agentfly show quickstart-1a2b3c4d --worst 3   read the three worst episodes of the last step
  agentfly evaluate quickstart --policy run:quickstart-1a2b3c4d
"""
GROUPS = (
    add_training,
    add_stages,
    add_play,
    add_listing,
    add_episodes,
    add_scoring,
    add_export,
    add_sharing,
    add_comparing,
    add_forking,
    add_nights,
    add_checks,
    add_opening,
    add_up,
    add_project,
    add_prefect,
)


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. A user's mistake is one message, not a traceback."""
    with visible_output():
        arguments = _parsed(words)
        command: Command = arguments.command
        try:
            import_ours()
            return command(arguments) or 0
        except MISTAKES as mistake:
            print(f"agentfly: {redact(message(mistake))}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("agentfly: interrupted; the same command continues.", file=sys.stderr)
            return 130


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, and as `typed` the command; settings may stand anywhere behind the experiment,
    among options.
    """
    parser = argparse.ArgumentParser(
        prog="agentfly",
        description="Train language-model agents with reinforcement learning; a run can be killed "
        "and continued.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = Commands(parser)
    for add in GROUPS:
        add(commands)

    arguments, more = parser.parse_known_args(words)
    if strange := [word for word in more if word.startswith("-") or "overrides" not in arguments]:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if more:
        arguments.overrides = [*arguments.overrides, *more]
    arguments.typed = shlex.join(["agentfly", *(sys.argv[1:] if words is None else words)])
    return arguments


def command_line() -> NoReturn:
    """Be the program `agentfly`."""
    leave(main())


if __name__ == "__main__":
    command_line()
