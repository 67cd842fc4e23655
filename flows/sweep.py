"""Train the runs of a sweep one after the other, each in its own process."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentfly_core.pipeline import inputs
from agentfly_core.reports.compare.run_comparison import (
    planned,
    problems_digest,
    require_comparable,
)
from agentfly_core.reports.compare.sweep import grid, is_finished
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.runs.run_tags import change_tags
from agentfly_core.store.store import Store
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.text import counted, environment
from agentfly_core.system.module_search import finding_ours
from agentfly_core.system.supervisor import die_with_parent
from flows.experiments import load_experiment
from flows.local.prefect_server import prefect_api
from flows.local.state_dirs import settle

# the exit status of a command after Ctrl-C
INTERRUPTED = 130


@dataclass(frozen=True)
class Sweep:
    """A sweep: several runs of an experiment with different settings.

    All runs get the tag `name`. `settings` has the overrides of each run. `options` are options of
    `agentfly train`, which choose the site and the store. An example is

        Sweep("rates", "quickstart", store, ["--site", "gpu"], {"quickstart-1f2e3d4c": ["seed=1"]})
    """

    name: str
    experiment: str
    store: Store
    options: Sequence[str]
    settings: Mapping[str, Sequence[str]]

    def differing(self, run: str) -> str:
        """Return the overrides of a run that are not common to all runs of the sweep.

        An example is "update.learning_rate=1e-4 seed=1". If all runs have the same overrides,
        return the name of the run.
        """
        shared = set.intersection(*map(set, self.settings.values()))
        return " ".join(each for each in self.settings[run] if each not in shared) or run


def planned_sweep(
    experiment: str, overrides: Sequence[str], site: str, uri: str, seeds: int | None, name: str
) -> Sweep:
    """Make the sweep for a list of overrides.

    An override may have several values, such as `update.learning_rate=1e-4,3e-4`.
    `uri` is the address of the store. Raises ValueError if two runs have the same settings, or if
    the runs differ in their test problems, or in the reward that decides success (the setting
    `evaluate.goal`, by default the first reward).
    """
    settings = grid(experiment, overrides, seeds)
    experiments = [load_experiment(experiment, each, site, uri) for each in settings]
    runs = [each.run_name("", False) for each in experiments]
    if len({*runs}) < len(runs):
        raise ValueError(
            "Two combinations of the listed values have the same settings. List each value only "
            "once."
        )
    trials = []
    for each, run in zip(experiments, runs, strict=True):
        RunRequest(each, run).check_new()
        problems = problems_digest(each.store, inputs.dataset(each), "test")
        trials.append(planned(each.settings, run, each.settings.steps, problems))
    require_comparable(trials)
    name = name or f"{experiments[0].name}-{digest(sorted(runs))[:8]}"
    options, store = ["--site", site, *(["--store", uri] if uri else [])], experiments[0].store
    return Sweep(name, experiment, store, options, dict(zip(runs, settings, strict=True)))


def train_runs(sweep: Sweep) -> list[str]:
    """Train the unfinished runs of a sweep, one after the other.

    The name of the sweep becomes a tag of all runs, finished runs included. Returns the names of
    the runs that failed. Raises KeyboardInterrupt if the user interrupts a run.
    """
    store, count = sweep.store, len(sweep.settings)
    done = [run for run in sweep.settings if is_finished(store, run)]
    for run in done:
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
            code = _command([*words, "--tag", sweep.name, *sweep.options])
            if code == INTERRUPTED:
                raise KeyboardInterrupt
            if code or not is_finished(store, run):
                failed.append(run)
    return failed


def _command(words: Sequence[str]) -> int:
    """Run an `agentfly` command in a child process, and return its exit status.

    If this process ends, the child process ends, too.
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
