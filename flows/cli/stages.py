"""Commands that make one thing: a dataset, a warm start, an evaluation; and the settings that they
would have.
"""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from rich.table import Column, Table

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.play import solvable
from agentfly_core.reports.show.dataset import made_anew, preview
from agentfly_core.runs import versioning
from flows import dvc_outputs
from flows.cli.arguments import Commands, positive
from flows.cli.given import context_given, experiment_context, flow_arguments
from flows.cli.orchestration import orchestrated
from flows.context import context_of
from flows.local.display import rates_table
from flows.local.terminal import VisibleConsole, print_json

PARAMS = "a params.yaml whose `overrides` it takes: [update.learning_rate=3e-4]"
POLICY = (
    "run:NAME (its last), run:NAME@STEP (0: the start), base (the experiment's model), "
    "endpoint:NAME (a chat service of the site), a model's folder or hub id, a policy.json "
    "(default: the last policy of the run that `agentfly train` with the same settings makes)"
)


def add(commands: Commands) -> None:
    """Add the command that evaluates, and the stages before training."""
    evaluating = commands.add_experiment("evaluate", evaluate)
    evaluating.add_argument("--policy", default="", metavar="REF", help=POLICY)
    evaluating.add_argument("--json", action="store_true", help="print one JSON document")
    preparing = commands.add_experiment("prepare", prepare)
    sample = "how many problems of each split are shown (default: 2)"
    preparing.add_argument("--sample", type=positive, default=2, metavar="N", help=sample)
    preparing.add_argument("--json", action="store_true", help="print one JSON document")
    commands.add_experiment("warm-start", warm_start)
    commands.add_experiment("config", config).add_argument(
        "--changed", action="store_true", help="only the settings that differ from the defaults"
    )
    resolving = commands.add_experiment("resolve", resolve)
    resolving.add_argument("--params", type=Path, metavar="FILE", help=PARAMS)


def evaluate(arguments: Namespace) -> None:
    """Play a policy on held-out problems."""
    experiment_context(arguments)
    with _only_json(arguments.json), orchestrated("evaluate", lambda: arguments.typed):
        from flows.evaluate import evaluate as flow

        rates = flow(**flow_arguments(arguments), policy=arguments.policy)
    if arguments.json:
        print_json(rates)
        return
    low, high, problems = rates["interval_low"], rates["interval_high"], rates["problems"]
    print(
        f"{rates['success']:.1%} of {problems} held-out problems solved, 95 % interval {low:.1%} "
        f"to {high:.1%}."
    )
    if rates.keys() & {"pass_at", "by", "datasets"}:
        VisibleConsole().print(rates_table(rates))


def prepare(arguments: Namespace) -> None:
    """Build, check and version the dataset."""
    context = experiment_context(arguments)
    reused = context.store.find(StageKeys(context.science).prepare()) is not None
    with _only_json(arguments.json), orchestrated("prepare", lambda: arguments.typed):
        from flows.prepare import prepare as flow

        data = flow(**flow_arguments(arguments))
    sample = preview(context.store, data, arguments.sample)
    checked = solvable.check(context.store, context.experiment, context.resolved, data)
    if arguments.json:
        print_json({**sample.to_json(), "reused": reused, "checked": checked})
        return
    print(f"{data.uri}\n{data.digest}")
    if reused:
        keys = StageKeys(context.science)
        print(made_anew(keys.data_code(), keys.data_files()))
    for line in checked:
        print(line)
    for line in sample.lines():
        print(line)


@contextmanager
def _only_json(wanted: bool) -> Iterator[None]:
    """Print to stderr within the block, so that stdout has only the JSON document."""
    with redirect_stdout(sys.stderr if wanted else sys.stdout):
        yield


def warm_start(arguments: Namespace) -> None:
    """Make the policy that training starts from."""
    checks.check_trainable(
        experiment_context(arguments).science.model,
        experiment_context(arguments).science.update.share_prefixes,
    )
    with orchestrated("warm-start", lambda: arguments.typed):
        from flows.warm_start import warm_start_only as flow

        policy = flow(**flow_arguments(arguments))
    print(f"{policy.uri}\n{policy.digest}")


def resolve(arguments: Namespace) -> None:
    """Write the complete configuration for DVC."""
    stored = versioning.overrides_in(arguments.params) if arguments.params else []
    overrides = [*stored, *arguments.overrides]
    context = context_of(arguments.experiment, overrides, arguments.site, arguments.store)
    science = context.science
    checks.check_inputs(science)
    settings = science.model_dump(mode="json")
    dvc_outputs.write_config(context.experiment, settings, science.code, overrides)


def config(arguments: Namespace) -> None:
    """Print the resolved settings with where each came from, and check all that a run would."""
    context = context_given(arguments)
    checks.check_beginning(context.science)
    _ = context.parent, context.reference, context.frozen  # raise for a run that is not there
    origin = {
        **context.origin,
        **loading.flat(loading.site_origin(arguments.site, arguments.store), "site."),
    }
    values = {
        **loading.flat(context.science.model_dump(mode="json")),
        **loading.flat(context.site.model_dump(), "site."),
    }
    usual = loading.defaults() if arguments.changed else {}
    table = Table(
        *(Column(name, overflow="fold") for name in ("setting", "value", "from")), show_edge=False
    )
    for key, value in values.items():
        is_set = origin[key] not in ("default", loading.TASKS) and usual.get(key, ...) != value
        if is_set or not arguments.changed:
            table.add_row(key, json.dumps(value), str(origin[key]))
    VisibleConsole().print(table)
    for remark in checks.remarks(context.resolved):
        print(f"agentfly: {remark}", file=sys.stderr)
