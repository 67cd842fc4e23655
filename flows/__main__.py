"""The command line: `agentfly COMMAND ...`, also `python -m flows COMMAND ...`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from agentfly_core.system.formats.text import redact
from agentfly_core.system.module_search import import_ours
from flows.cli.arguments import Command, Commands
from flows.cli.table import COMMANDS
from flows.local.visible_output import visible_output

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


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. A user's mistake is one message, not a traceback."""
    with visible_output():
        import_ours()
        arguments = _parsed(sys.argv[1:] if words is None else words)
        command: Command = arguments.command
        try:
            return command(arguments) or 0
        except KeyboardInterrupt:
            print("agentfly: interrupted; the same command continues.", file=sys.stderr)
            return 130
        except Exception as error:  # raised again unless it is a mistake of the user
            from flows.cli.orchestration import is_mistake, message  # imports libraries

            if not is_mistake(error):
                raise
            print(f"agentfly: {redact(message(error))}", file=sys.stderr)
            return 2


def _parsed(words: Sequence[str]) -> argparse.Namespace:
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
    _add_commands(Commands(parser), words)
    arguments, more = parser.parse_known_args(words)
    if strange := [word for word in more if word.startswith("-") or "overrides" not in arguments]:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if more:
        arguments.overrides = [*arguments.overrides, *more]
    arguments.typed = shlex.join(["agentfly", *words])
    return arguments


def _add_commands(commands: Commands, words: Sequence[str]) -> None:
    """Add the command that the words name; without one, all names for the help and the error."""
    name = next((word for word in words if not word.startswith("-")), "")
    if name in COMMANDS:
        import_module(f"flows.cli.{COMMANDS[name].module}").add(commands)
        return
    for each in COMMANDS:
        commands.add(each, lambda _: None)


def command_line() -> NoReturn:
    """Be the program `agentfly`."""
    status = main()
    if "prefect" in sys.modules:
        from flows.local.prefect_server import leave

        leave(status)
    sys.exit(status)


if __name__ == "__main__":
    command_line()
