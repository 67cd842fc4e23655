"""Commands for several runs: do them in a sweep, and compare them."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.experiment.checks import check_run
from agentfly_core.pipeline import inputs
from agentfly_core.reports.compare.comparison_view import Curves, draw, view
from agentfly_core.reports.compare.learning_curves import curve
from agentfly_core.reports.compare.run_comparison import (
    RunComparison,
    compared,
    require_comparable,
)
from agentfly_core.reports.compare.sweep_grid import grid
from agentfly_core.reports.compare.sweep_record import (
    PREFIX,
    Member,
    Sweep,
    is_finished,
    runs_named,
)
from agentfly_core.reports.compare.tried_policy import planned, tried
from agentfly_core.runs.listing import in_store
from agentfly_core.runs.run import name_of
from agentfly_core.store.store import Store
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.text import counted
from flows.cli.arguments import STORE, Commands, positive
from flows.context import context_of
from flows.local.terminal import VisibleConsole, print_json
from flows.store import store_at
from flows.sweep import run_members

REFERENCE = "a finished run, RUN@STEP where that was evaluated, or sweep:NAME"
SWEEP = (
    "the sweep's name, for `agentfly compare sweep:NAME` (default: EXPERIMENT-<digest of its "
    "settings>); the same command continues it"
)


def add(commands: Commands) -> None:
    """The commands that compare and sweep runs."""
    comparing = commands.add("compare", compare)
    comparing.add_argument("policies", metavar="RUN", nargs="+", help=REFERENCE)
    against = "the run that the others are compared with (default: the first)"
    comparing.add_argument("--against", default="", metavar="RUN", help=against)
    split = "which problems: test (default), validation, or one of evaluate.datasets"
    comparing.add_argument("--split", default="test", metavar="NAME", help=split)
    comparing.add_argument("--png", default="", metavar="FILE", help="write a picture as well")
    comparing.add_argument("--json", action="store_true", help="one JSON document for programs")
    comparing.add_argument("--store", default="", help=STORE)

    sweeping = commands.add_experiment("sweep", sweep)
    seeds = "number of seeds, from the experiment's own on; all on the same problems"
    sweeping.add_argument("--seeds", type=positive, default=None, metavar="K", help=seeds)
    sweeping.add_argument("--name", default="", help=SWEEP)


def compare(arguments: Namespace) -> None:
    """Compare runs on the same held-out problems."""
    store, split = store_at(arguments.store), arguments.split
    comparison, curves = _compared(store, arguments.policies, split, arguments.against)
    if arguments.png:
        draw(comparison, curves, split, Path(arguments.png))
    if arguments.json:
        learning = {label: [each.to_json() for each in of] for label, of in curves.items()}
        print_json({**comparison.to_json(), "split": split, "learning": learning})
        return
    VisibleConsole().print(view(comparison, curves, split), soft_wrap=True)
    if arguments.png:
        print(f"The picture is {arguments.png}")


def _compared(
    store: Store, references: Sequence[str], split: str, against: str
) -> tuple[RunComparison, Curves]:
    names = runs_named(store, references)
    comparison = compared([tried(store, name, split) for name in names], against)
    curves = {
        group.label: [curve(store, policy.run, policy.step) for policy in group.policies]
        for group in comparison.groups
    }
    return comparison, curves


def sweep(arguments: Namespace) -> int:
    """Train with each combination of values and each seed, or continue with that, and compare."""
    made, store = _sweep(arguments)
    where = ["--site", made.site, *(["--store", arguments.store] if arguments.store else [])]
    failed = run_members(made, store, where)
    done = [member.run for member in made.members if is_finished(store, member.run)]
    for member in failed:
        print(f"{member.run} failed: {made.differing(member)}", file=sys.stderr)
    if failed:
        ended = f"{len(failed)} of {counted(len(made.members), 'run')} failed."
        again = made.command(store)
        print(f"{ended} Correct the causes, then continue: {again}", file=sys.stderr)
    if done:
        print()
        VisibleConsole().print(view(*_compared(store, done, "test", ""), "test"), soft_wrap=True)
    if not failed:
        again = in_store(store, "agentfly", "compare", f"{PREFIX}{made.name}")
        print(f"The same again: {again}")
    return 1 if failed else 0


def _sweep(arguments: Namespace) -> tuple[Sweep, Store]:
    """The stored sweep of a command; raises ValueError where its runs could not
    be compared.
    """
    experiment, site = arguments.experiment, arguments.site
    settings = grid(experiment, arguments.overrides, arguments.seeds)
    contexts = [context_of(experiment, each, site, arguments.store) for each in settings]
    runs = [name_of(context, "", False) for context in contexts]
    if len({*runs}) < len(runs):
        raise ValueError("Two of the combinations are the same run: list each value once.")
    for context, run in zip(contexts, runs, strict=True):
        check_run(context, run)
    trials = [
        planned(context, run, inputs.dataset(context))
        for context, run in zip(contexts, runs, strict=True)
    ]
    require_comparable(trials)
    store = contexts[0].store
    name = arguments.name or f"{contexts[0].experiment}-{digest(sorted(runs))[:8]}"
    members = tuple(Member(run, tuple(each)) for run, each in zip(runs, settings, strict=True))
    made = Sweep(name, experiment, tuple(arguments.overrides), arguments.seeds, site, members)
    made.write(store)
    return made, store
