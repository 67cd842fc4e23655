"""The command line: `agentfly COMMAND ...`, also `python -m flows COMMAND ...`."""

import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NoReturn

from cyclopts import CycloptsError, UnknownCommandError, UnknownOptionError

from agentfly_core.system.formats.text import redact
from agentfly_core.system.module_search import import_ours
from flows.cli.app import agentfly
from flows.local.terminal import is_unread, typed, visible_output


def main(words: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. `words` are the words after `agentfly`.

    For a user's mistake, a message is printed without a traceback.
    """
    words = sys.argv[1:] if words is None else words
    with visible_output() if words[:1] != ["__complete"] else nullcontext():  # a shell reads this
        import_ours()
        typed.set(shlex.join(["agentfly", *words]))
        try:
            command, bound, _ = agentfly(words).parse_args(
                words, exit_on_error=False, print_error=False
            )
            status = command(*bound.args, **bound.kwargs) or 0
            sys.stdout.flush()
            return status
        except CycloptsError as error:
            # the words of a command may contain a secret
            print(f"agentfly: {redact(explain(error, words))}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("agentfly: interrupted. To continue, repeat the command.", file=sys.stderr)
            return 130
        except Exception as error:  # the error is raised again unless it is a user's mistake
            if isinstance(error, BrokenPipeError) and is_unread():
                # Python prints an error if its last flush fails
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 1
            from flows.orchestration import Mistake, message  # imports libraries

            if not isinstance(error, Mistake):
                raise
            print(f"agentfly: {redact(message(error))}", file=sys.stderr)
            return 2


def explain(error: CycloptsError, words: Sequence[str]) -> str:
    """Return the message for a wrong command.

    If the command has an unknown option with the name of a setting, such as --learning-rate, the
    message shows how to write the setting: key=value.
    """
    if isinstance(error, UnknownOptionError):
        from agentfly_core.config.loading import settings
        from agentfly_core.config.mismatch import settings_like

        option = error.token.keyword or error.token.value
        name, equals, value = option.partition("=")
        if likely := settings_like(name, settings()):
            following = words[words.index(option) + 1 :] if option in words else []
            value = value if equals else next(iter(following), "VALUE")
            return f"There is no option {name}. Settings have no dashes: {likely[0]}={value}"
    command = "agentfly" if isinstance(error, UnknownCommandError) else f"agentfly {words[0]}"
    return f"{error} See `{command} --help`."


def command_line() -> NoReturn:
    """Run the command line `agentfly`, and exit with its status."""
    status = main()
    if "prefect" in sys.modules:
        from flows.local.prefect_server import leave

        leave(status)
    sys.exit(status)


if __name__ == "__main__":
    command_line()
