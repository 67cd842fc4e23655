"""Commands that set runs beside each other: compare them, and go on from a step of one."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from rich.console import Console

from agentfly_core.artifacts.store import Store
from agentfly_core.config.experiment import Fork, step_named
from agentfly_core.formats.text import did_you_mean
from agentfly_core.pipeline.forking import forked, require_learner_state
from agentfly_core.records.run_record import RunRecord
from agentfly_core.reports.comparing.comparison_view import draw, view
from agentfly_core.reports.comparing.learning_curves import curve
from agentfly_core.reports.comparing.run_comparison import compared
from agentfly_core.reports.comparing.tried_policy import tried
from agentfly_core.runs.listing import experiment_of
from agentfly_core.runs.run import name_of, record_of
from flows.commands.arguments import OVERRIDES, SITE, STORE, Commands, experiment_context
from flows.commands.training import RUN, train
from flows.context import store_at

REFERENCE = "a finished run, or RUN@STEP where that was evaluated"


def add_comparing(commands: Commands) -> None:
    """The commands that compare and that fork runs."""
    comparing = commands.add(
        "compare", compare, "how much more of the same held-out problems runs solve, how surely"
    )
    comparing.add_argument("policies", metavar="RUN", nargs="+", help=REFERENCE)
    against = "the run that the others are held against (default: the first)"
    comparing.add_argument("--against", default="", metavar="RUN", help=against)
    split = "which problems: test (default), or validation where a run played them"
    comparing.add_argument("--split", default="test", choices=("test", "validation"), help=split)
    comparing.add_argument("--png", default="", metavar="FILE", help="write a picture as well")
    comparing.add_argument("--json", action="store_true", help="one JSON document for programs")
    comparing.add_argument("--store", default="", help=STORE)

    forking = commands.add(
        "fork", fork, "go on from a step of a run with other settings, as another run"
    )
    forking.add_argument("origin", metavar="RUN@STEP", help="the run, and the step to go on from")
    forking.add_argument("overrides", metavar="key=value", nargs="*", help=OVERRIDES)
    forking.add_argument("--run", default="", help=RUN)
    forking.add_argument("--new", action="store_true", help="start another run of the same fork")
    forking.add_argument("--site", default="", help=f"{SITE.split(' (')[0]} (default: the run's)")
    forking.add_argument("--store", default="", help=STORE)


def compare(arguments: Namespace) -> None:
    """Compare runs on the same held-out problems."""
    store, split = store_at(arguments.store), arguments.split
    names = dict.fromkeys(arguments.policies)
    comparison = compared([tried(store, name, split) for name in names], arguments.against)
    curves = {
        group.label: [curve(store, policy.run, policy.step) for policy in group.policies]
        for group in comparison.groups
    }
    if arguments.png:
        draw(comparison, split, curves, Path(arguments.png))
    if arguments.json:
        learning = {label: [each.to_json() for each in of] for label, of in curves.items()}
        print(json.dumps({**comparison.to_json(), "split": split, "learning": learning}))
        return
    Console().print(view(comparison, split, curves), soft_wrap=True)
    if arguments.png:
        print(f"The picture is {arguments.png}")


def fork(arguments: Namespace) -> None:
    """Go on from a step of a run: start the fork, or continue it."""
    store = store_at(arguments.store)
    named = step_named(f"run:{arguments.origin.removeprefix('run:')}")
    if named is None or named[1] == 0:
        raise ValueError(
            f"Got {arguments.origin!r}, expected RUN@STEP with a step of 1 or more, such as "
            "quickstart-1f2e3d4c@7."
        )
    run, step = named
    record = _record(store, run)
    arguments.experiment, own = experiment_of(record)
    behind = forked(store, Fork(run=run, step=step), arguments.overrides)
    arguments.overrides = [*own, *behind]
    arguments.site = arguments.site or record["site"]["name"]

    context = experiment_context(arguments)
    begun = record_of(store, name_of(context, arguments.run, arguments.new))
    if begun is None and context.science.fork and context.science.inherits_learner:
        require_learner_state(store, context.science.fork)
    train(arguments)


def _record(store: Store, run: str) -> RunRecord:
    if (record := record_of(store, run)) is None:
        hint = did_you_mean(run, store.names("runs"))
        raise ValueError(f"There is no run {run!r} in {store.uri}.{hint}")
    return record
