"""Commands for several runs: train them in a sweep, and compare them."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from agentfly_core.reports.compare.comparison_view import compared_runs, draw, view
from agentfly_core.reports.compare.sweep import PREFIX, is_finished
from agentfly_core.runs.listing import in_store
from flows.cli.arguments import HERE, RUNS, AsJson, ExperimentArg, Override, StoreArg, Where
from flows.local.terminal import VisibleConsole, output, typed
from flows.store import store_at
from flows.sweep import planned_sweep, train_runs


def compare(
    *policies: Annotated[str, Parameter(name="RUN", required=True), RUNS],
    split: str = "test",
    png: Path | None = None,
    as_json: AsJson = False,
    store_uri: StoreArg = "",
) -> None:
    """Compare runs with the first run, on the same problems.

    Args:
        policies: a finished run, an evaluated RUN@STEP, or sweep:NAME
        split: the held-out problems: test, validation, or one of evaluate.datasets
        png: also draw the comparison into this file
    """
    comparison, curves = compared_runs(store_at(store_uri), policies, split)
    if png:
        draw(comparison, curves, split, png)
    learning = {label: [each.to_json() for each in of] for label, of in curves.items()}
    document = {**comparison.to_json(), "split": split, "learning": learning}
    output(lambda: document, lambda: view(comparison, curves, split), as_json)
    if png and not as_json:
        print(f"The picture is {png}")


def sweep(
    target: ExperimentArg,
    /,
    *overrides: Override,
    where: Where = HERE,
    seeds: PositiveInt | None = None,
    name: str = "",
) -> int:
    """Train with each combination of values and seeds, and compare.

    Args:
        seeds: number of seeds, beginning with the experiment's seed; the runs of all seeds use the
            same problems
        name: name of the sweep, as in `agentfly compare sweep:NAME` (default: EXPERIMENT-DIGEST,
            with a digest of the settings); the same command continues the sweep
    """
    made = planned_sweep(target, overrides, where.site, where.store, seeds, name)
    store, failed = made.store, train_runs(made)
    for run in failed:
        print(f"{run} failed: {made.differing(run)}", file=sys.stderr)
    if failed:
        print(f"Correct the causes. To continue: {typed.get()}", file=sys.stderr)
    if done := [run for run in made.settings if is_finished(store, run)]:
        VisibleConsole().print(view(*compared_runs(store, done, "test"), "test"), soft_wrap=True)
    if not failed:
        print("The same again:", in_store(store, "agentfly", "compare", f"{PREFIX}{made.name}"))
    return int(bool(failed))
