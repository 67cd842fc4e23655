"""Commands that set runs beside each other: one that goes on from a step of another."""

from __future__ import annotations

from argparse import Namespace

from agentfly_core.artifacts.store import Store
from agentfly_core.config.experiment import Fork, step_named
from agentfly_core.formats.text import did_you_mean
from agentfly_core.pipeline.forking import forked, require_learner_state
from agentfly_core.records.run_record import RunRecord
from agentfly_core.runs.listing import experiment_of
from agentfly_core.runs.run import name_of, record_of
from flows.commands.arguments import OVERRIDES, SITE, STORE, Commands, experiment_context
from flows.commands.training import RUN, train
from flows.context import store_at


def add_comparing(commands: Commands) -> None:
    """The command that forks a run."""
    forking = commands.add(
        "fork", fork, "go on from a step of a run with other settings, as another run"
    )
    forking.add_argument("origin", metavar="RUN@STEP", help="the run, and the step to go on from")
    forking.add_argument("overrides", metavar="key=value", nargs="*", help=OVERRIDES)
    forking.add_argument("--run", default="", help=RUN)
    forking.add_argument("--new", action="store_true", help="start another run of the same fork")
    forking.add_argument("--site", default="", help=f"{SITE.split(' (')[0]} (default: the run's)")
    forking.add_argument("--store", default="", help=STORE)


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
