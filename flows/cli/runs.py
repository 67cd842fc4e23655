"""The command that lists the runs of a store."""

from __future__ import annotations

from argparse import Namespace

from agentfly_core.reports.show import run_choice
from agentfly_core.reports.show.run_choice import SORTINGS
from agentfly_core.runs.listing import listed, view
from agentfly_core.system.formats.text import counted
from flows.cli.arguments import STORE, Commands
from flows.local.terminal import VisibleConsole, print_json
from flows.store import store_at

SORT = "by name, or the newest (time), best (success) or furthest (step) first (default: name)"
FILTER = (
    "only runs with this text in their line, or experiment=NAME, state=stopped, tag=WORD, "
    "update.learning_rate=3e-4; all that are given must hold"
)


def add(commands: Commands) -> None:
    """Add the command."""
    listing = commands.add("list", list_runs)
    listing.add_argument("--sort", choices=SORTINGS, default="name", help=SORT)
    listing.add_argument("--filter", action="append", default=[], metavar="TEXT", help=FILTER)
    listing.add_argument("--json", action="store_true", help="one JSON document")
    listing.add_argument("--store", default="", help=STORE)


def list_runs(arguments: Namespace) -> None:
    """Print the runs of a store."""
    store = store_at(arguments.store)
    everything = listed(store)
    runs = run_choice.ordered(run_choice.only(everything, arguments.filter), arguments.sort)
    if arguments.json:
        print_json(run_choice.as_json(runs))
    elif everything and not runs:
        wanted = " and ".join(arguments.filter)
        print(f"None of {counted(len(everything), 'run')} matches {wanted}.")
    else:
        VisibleConsole().print(view(runs, store), soft_wrap=True)
