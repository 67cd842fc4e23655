"""The runs of a sweep, one after the other, each in its own process, with one Prefect server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.experiment.checks import check_run
from agentfly_core.pipeline import inputs
from agentfly_core.reports.compare.run_comparison import require_comparable
from agentfly_core.reports.compare.sweep import Member, Sweep, grid, is_finished
from agentfly_core.reports.compare.tried_policy import planned
from agentfly_core.store.store import Store
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.text import counted, environment
from agentfly_core.system.module_search import finding_ours
from agentfly_core.system.supervisor import die_with_parent
from flows.experiments import load_experiment
from flows.local.prefect_server import prefect_api
from flows.local.state_dirs import settle

INTERRUPTED = 130


def make_sweep(
    experiment: str, overrides: Sequence[str], site: str, uri: str, seeds: int | None, name: str
) -> tuple[Sweep, Store]:
    """Store a sweep in the store at `uri`; raises ValueError if its runs cannot be compared."""
    settings = grid(experiment, overrides, seeds)
    experiments = [load_experiment(experiment, each, site, uri) for each in settings]
    runs = [each.run_name("", False) for each in experiments]
    if len({*runs}) < len(runs):
        raise ValueError("Two of the combinations are the same run: list each value once.")
    for each, run in zip(experiments, runs, strict=True):
        check_run(each, run)
    trials = [
        planned(each, run, inputs.dataset(each))
        for each, run in zip(experiments, runs, strict=True)
    ]
    require_comparable(trials)
    store = experiments[0].store
    name = name or f"{experiments[0].name}-{digest(sorted(runs))[:8]}"
    members = tuple(Member(run, tuple(each)) for run, each in zip(runs, settings, strict=True))
    made = Sweep(name, experiment, tuple(overrides), seeds, site, members)
    made.write(store)
    return made, store


def run_members(sweep: Sweep, store: Store, where: Sequence[str]) -> list[Member]:
    """Train the unfinished runs of a sweep; returns the failed ones.

    `where` are the words that name the site and the store. Raises KeyboardInterrupt if a run was
    interrupted.
    """
    left, count = sweep.unfinished(store), len(sweep.members)
    if not left:
        return []
    print(f"Sweep {sweep.name}: {counted(count, 'run')}, {count - len(left)} finished.", flush=True)
    failed: list[Member] = []
    with prefect_api(settle(Path.cwd())) as wait:
        wait()
        for number, member in enumerate(left, count - len(left) + 1):
            failures = f", {len(failed)} failed" if failed else ""
            print(f"\nRun {number} of {count}{failures}: {sweep.differing(member)}", flush=True)
            words = ["train", sweep.experiment, *member.overrides, "--run", member.run, *where]
            code = _command(words)
            if code == INTERRUPTED:
                raise KeyboardInterrupt
            if code or not is_finished(store, member.run):
                failed.append(member)
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
