"""The command line: `agentfly COMMAND ...`, also `python -m flows COMMAND ...`."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from agentfly_core.formats.text import redact
from agentfly_core.system.module_search import refuse_namesakes
from flows import commands
from flows.local.prefect_server import leave

EXPERIMENT = "name of a file in ./conf (quickstart, shop, ...), or a path to your own yaml"
OVERRIDES = "settings that differ from the file, for example update.learning_rate=3e-4 rollout.group_size=16"
RUN = "the run's name (default: EXPERIMENT-<digest of its settings>, so that the same command continues it)"
SITE = "where it runs: a file in ./conf/site (default: local); AGENTFLY_<KEY> variables change single settings"
STORE = "where runs and artifacts go: a folder (default: .) or s3://bucket/prefix"
POLICY = (
    "run:NAME (its last), run:NAME@STEP (0: the start), a model's folder or hub id, a policy.json (default: the last "
    "policy of the run that `agentfly train` with the same settings makes)"
)
EXAMPLES = """
examples:
  agentfly train quickstart                     train; run it again after any interruption and it goes on
  agentfly train quickstart seed=1              another seed is another run
  agentfly train quickstart --run mine steps=30 continue the run 'mine' up to step 30
  agentfly show quickstart-1a2b3c4d --worst 3   read the three worst episodes of the last step
  agentfly evaluate quickstart --policy run:quickstart-1a2b3c4d
"""


def main(words: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status. A user's mistake is one message, not a traceback."""
    arguments = _parsed(words)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        refuse_namesakes(Path.cwd())
        return command(arguments)
    except commands.MISTAKES as mistake:
        print(f"agentfly: {redact(commands.told(mistake))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("agentfly: interrupted; the same command continues.", file=sys.stderr)
        return 130


def _parsed(words: Sequence[str] | None) -> argparse.Namespace:
    """The arguments, and as `typed` the command; settings may stand anywhere behind the experiment, among options."""
    parser = _parser()
    arguments, more = parser.parse_known_args(words)
    if strange := [word for word in more if word.startswith("-") or "overrides" not in arguments]:
        parser.error(f"unrecognized arguments: {' '.join(strange)}")
    if more:
        arguments.overrides = [*arguments.overrides, *more]
    arguments.typed = shlex.join(["agentfly", *(sys.argv[1:] if words is None else words)])
    return arguments


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="agentfly",
        description="Train language-model agents with reinforcement learning; a run can be killed and continued.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def add(name: str, does: str) -> argparse.ArgumentParser:
        return known.add_parser(name, help=does, description=f"{does[0].upper()}{does[1:]}.")

    train = _experiment(add("train", "start a run, or continue it"), commands.train)
    train.add_argument("--run", default="", help=RUN)
    train.add_argument("--new", action="store_true", help="start another run even if there is one: NAME-2, NAME-3, ...")
    evaluate = _experiment(add("evaluate", "held-out success of any policy, with an interval"), commands.evaluate)
    evaluate.add_argument("--policy", default="", metavar="REF", help=POLICY)
    _experiment(add("prepare", "build, check and version the dataset only"), commands.prepare)
    _experiment(add("warm-start", "make the policy that training starts from"), commands.warm_start)
    _experiment(add("config", "the resolved settings, each with where it came from"), commands.config)
    _experiment(add("resolve", "write the complete settings into results/ for DVC"), commands.resolve)
    listing = add("list", "all runs: state, owner, last step, and the command that continues each")
    listing.set_defaults(command=commands.list_runs)
    listing.add_argument("--store", default="", help=STORE)
    show = add("show", "read episodes in the terminal, sampled tokens told apart from read ones")
    show.set_defaults(command=commands.show)
    show.add_argument("run", help="name of a run, see `agentfly list`")
    show.add_argument("--step", type=int, default=None, help="which step (default: the last one)")
    worst = "how many episodes, lowest reward first (default: 3)"
    show.add_argument("--worst", type=_positive, default=3, metavar="K", help=worst)
    show.add_argument("--store", default="", help=STORE)
    doctor = add("doctor", "what this machine can run, and what to do about what it can't")
    doctor.set_defaults(command=commands.doctor)
    doctor.add_argument("--sandbox", action="store_true", help="attack the sandbox, and say what it stops")
    repro = add("repro", "reproduce an experiment with DVC")
    repro.set_defaults(command=commands.repro)
    repro.add_argument("experiment", help="name of a file in ./conf")
    opening = add("open", "open a run in the MLflow or the Prefect UI; serves it until Ctrl-C where no server runs")
    opening.set_defaults(command=commands.open_ui)
    opening.add_argument("ui", choices=("mlflow", "prefect"))
    opening.add_argument("run", help="name of a run, see `agentfly list`")
    opening.add_argument("--store", default="", help=STORE)
    prefect = add("prefect", "any Prefect command on this project's state, for example: agentfly prefect server start")
    prefect.set_defaults(command=commands.prefect)
    prefect.add_argument("words", nargs=argparse.REMAINDER)
    return parser


def _experiment(
    parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser.set_defaults(command=command)
    parser.add_argument("experiment", metavar="EXPERIMENT", help=EXPERIMENT)
    parser.add_argument("overrides", metavar="key=value", nargs="*", help=OVERRIDES)
    parser.add_argument("--site", default="local", help=SITE)
    parser.add_argument("--store", default="", help=STORE)
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"got {number}, expected 1 or more")
    return number


def command_line() -> NoReturn:
    """Be the program `agentfly`."""
    leave(main())


if __name__ == "__main__":
    command_line()
