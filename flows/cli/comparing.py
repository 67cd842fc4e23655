"""Commands for several runs: train them in a sweep, and compare them."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveInt

from agentfly_core.pipeline import inputs
from agentfly_core.reports.compare.comparison_view import compared_runs, draw, view
from agentfly_core.reports.compare.run_comparison import (
    planned,
    problems_digest,
    require_comparable,
)
from agentfly_core.reports.compare.sweep import PREFIX, grid, is_finished
from agentfly_core.runs.listing import in_store
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import change_tags, tags_of
from agentfly_core.store.store import Store
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.text import counted, environment
from agentfly_core.system.module_search import finding_ours
from agentfly_core.system.supervisor import die_with_parent
from flows.cli.arguments import HERE, RUNS, AsJson, ExperimentArg, Override, StoreArg, Where, typed
from flows.experiments import load_experiment
from flows.local.prefect_server import prefect_api
from flows.local.state_dirs import settle
from flows.local.terminal import VisibleConsole, output
from flows.store import store_at

# the exit status of a command after Ctrl-C
INTERRUPTED = 130


def compare(
    *policies: Annotated[str, Parameter(name="RUN", required=True), RUNS],
    against: Annotated[str, RUNS] = "",
    split: str = "test",
    png: Path | None = None,
    as_json: AsJson = False,
    store_uri: StoreArg = "",
) -> None:
    """Compare runs on the same held-out problems.

    For example `agentfly compare mine other --png curves.png`.

    Args:
        policies: a finished run, an evaluated RUN@STEP, or sweep:NAME
        against: the run with which others are compared (default: the first)
        split: the problems: test, validation, or one of evaluate.datasets
        png: also write a picture
    """
    comparison, curves = compared_runs(store_at(store_uri), policies, split, against)
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
    """Train with each combination of values and seeds; compare.

    For example `agentfly sweep quickstart update.learning_rate=1e-4,3e-4 --seeds 3`.

    Args:
        seeds: number of seeds, beginning with the experiment's; problems are the same for all
        name: the tag of the sweep's runs, for `agentfly compare sweep:NAME` (default:
            EXPERIMENT-DIGEST of the settings); the same command continues the sweep
    """
    made = planned_sweep(target, overrides, where.site, where.store, seeds, name)
    store, options = made.store, ["--site", where.site]
    failed = train_runs(made, [*options, *(["--store", where.store] if where.store else [])])
    for run in failed:
        print(f"{run} failed: {made.differing(run)}", file=sys.stderr)
    if failed:
        print(f"Correct the causes, then continue: {typed.get()}", file=sys.stderr)
    if done := [run for run in made.settings if is_finished(store, run)]:
        VisibleConsole().print(
            view(*compared_runs(store, done, "test", ""), "test"), soft_wrap=True
        )
    if not failed:
        print("The same again:", in_store(store, "agentfly", "compare", f"{PREFIX}{made.name}"))
    return int(bool(failed))


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, which have the tag `name`, and the settings of each run.

    `Sweep("rates", "quickstart", store, {"quickstart-1f2e3d4c": ["rollout.problems=8"], ...})`
    """

    name: str
    experiment: str
    store: Store
    settings: Mapping[str, Sequence[str]]

    def differing(self, run: str) -> str:
        """Return the settings of a run in which the runs differ, "update.learning_rate=1e-4
        seed=1". Return its name if the runs do not differ.
        """
        shared = set.intersection(*map(set, self.settings.values()))
        return " ".join(each for each in self.settings[run] if each not in shared) or run


def planned_sweep(
    experiment: str, overrides: Sequence[str], site: str, uri: str, seeds: int | None, name: str
) -> Sweep:
    """Plan a sweep in the store at `uri`. Raises ValueError if its runs cannot be compared."""
    settings = grid(experiment, overrides, seeds)
    experiments = [load_experiment(experiment, each, site, uri) for each in settings]
    runs = [each.run_name("", False) for each in experiments]
    if len({*runs}) < len(runs):
        raise ValueError("Two combinations have the same settings. List each value only once.")
    trials = []
    for each, run in zip(experiments, runs, strict=True):
        RunRequest(each, run).check_new()
        problems = problems_digest(each.store, inputs.dataset(each), "test")
        trials.append(planned(each.settings, run, each.settings.steps, problems))
    require_comparable(trials)
    name = name or f"{experiments[0].name}-{digest(sorted(runs))[:8]}"
    return Sweep(name, experiment, experiments[0].store, dict(zip(runs, settings, strict=True)))


def train_runs(sweep: Sweep, where: Sequence[str]) -> list[str]:
    """Train the unfinished runs of a sweep, and tag all runs. Return the names of failed runs.

    `where` contains the options for the site and the store. Raises KeyboardInterrupt if a run was
    interrupted.
    """
    store, count = sweep.store, len(sweep.settings)
    done = [run for run in sweep.settings if is_finished(store, run)]
    for run in done:
        if sweep.name not in tags_of(store, run):
            change_tags(store, run, [sweep.name], [])
    print(f"Sweep {sweep.name}: {counted(count, 'run')}, {len(done)} finished.", flush=True)
    if len(done) == count:
        return []
    failed: list[str] = []
    with prefect_api(settle()) as wait:
        wait()
        left = [run for run in sweep.settings if run not in done]
        for number, run in enumerate(left, len(done) + 1):
            print(f"\nRun {number} of {count}: {sweep.differing(run)}", flush=True)
            words = ["train", sweep.experiment, *sweep.settings[run], "--run", run]
            code = _command([*words, "--tag", sweep.name, *where])
            if code == INTERRUPTED:
                raise KeyboardInterrupt
            if code or not is_finished(store, run):
                failed.append(run)
    return failed


def _command(words: Sequence[str]) -> int:
    """Run an `agentfly` command in a child process, and return its exit status. The child ends with
    this process.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "flows", *words],
        env={**environment(), **finding_ours()},
        preexec_fn=die_with_parent,
    )
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()  # the child got the signal as well, and ends by itself
        raise
