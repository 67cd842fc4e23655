"""The runs of a sweep, one after the other, each in its own process, with one Prefect server."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentfly_core.experiment.checks import check_run
from agentfly_core.pipeline import inputs
from agentfly_core.reports.compare.run_comparison import (
    planned,
    problems_digest,
    require_comparable,
)
from agentfly_core.reports.compare.sweep import grid, is_finished
from agentfly_core.runs.run_tags import change_tags, tags_of
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
    """Runs with the tag `name`, and the settings of each.

    `Sweep("rates", "quickstart", store, {"quickstart-1f2e3d4c": ["rollout.problems=8"], ...})`
    """

    name: str
    experiment: str
    store: Store
    settings: Mapping[str, Sequence[str]]

    def differing(self, run: str) -> str:
        """The settings that not all runs have, "update.learning_rate=1e-4 seed=1", or its name."""
        shared = set.intersection(*map(set, self.settings.values()))
        return " ".join(each for each in self.settings[run] if each not in shared) or run


def planned_sweep(
    experiment: str, overrides: Sequence[str], site: str, uri: str, seeds: int | None, name: str
) -> Sweep:
    """Plan a sweep in the store at `uri`; raises ValueError if its runs cannot be compared."""
    settings = grid(experiment, overrides, seeds)
    experiments = [load_experiment(experiment, each, site, uri) for each in settings]
    runs = [each.run_name("", False) for each in experiments]
    if len({*runs}) < len(runs):
        raise ValueError("Two of the combinations are the same run: list each value once.")
    trials = []
    for each, run in zip(experiments, runs, strict=True):
        check_run(each, run)
        problems = problems_digest(each.store, inputs.dataset(each), "test")
        trials.append(planned(each.settings, run, each.settings.steps, problems))
    require_comparable(trials)
    name = name or f"{experiments[0].name}-{digest(sorted(runs))[:8]}"
    return Sweep(name, experiment, experiments[0].store, dict(zip(runs, settings, strict=True)))


def train_runs(sweep: Sweep, where: Sequence[str]) -> list[str]:
    """Train the unfinished runs of a sweep, and tag all; returns the failed ones.

    `where` are the words that name the site and the store. Raises KeyboardInterrupt if a run was
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
    """Run an `agentfly` command and return its exit status; it ends with this process."""
    child = subprocess.Popen(
        [sys.executable, "-m", "flows", *words],
        env={**environment(), **finding_ours()},
        preexec_fn=die_with_parent,
    )
    try:
        return child.wait()
    except KeyboardInterrupt:
        child.wait()  # it got the signal as well, and ends in order
        raise
