"""Does the quickstart learn, and from its rewards? Three seeds of it, and a control with permuted rewards.

    .venv/bin/python benchmarks/learning.py [--experiment quickstart] [--seeds 1 2 3]

Each run is an ordinary one (`runs/learning-...`): interrupted, the same command goes on; finished runs are only read.
Held-out: the experiment's test problems at its temperature; the interval of after - before is paired by problem.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agentfly_core.runs import intervals
from agentfly_core.runs.run import final_policy
from agentfly_core.runs.summary import Evaluation, stored_evaluation
from flows.context import context_of

CONTROL = "algorithm.use=benchmarks.permuted:PermutedGRPO"


@dataclass(frozen=True)
class Outcome:
    """One run: `Outcome("seed 1", before, after)`."""

    name: str
    before: Evaluation
    after: Evaluation


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--experiment", default="quickstart")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    outcomes = [outcome(options.experiment, f"seed {seed}", [f"seed={seed}"]) for seed in options.seeds]
    control = [f"seed={options.seeds[0]}", CONTROL]
    outcomes.append(outcome(options.experiment, f"permuted rewards, seed {options.seeds[0]}", control))
    Console().print(table(outcomes))


def outcome(experiment: str, name: str, overrides: list[str]) -> Outcome:
    """Train, or read what was trained."""
    run = f"learning-{experiment}-{name.replace(' ', '-').replace(',', '')}"
    subprocess.run([sys.executable, "-m", "flows", "train", experiment, *overrides, "--run", run], check=True)
    context = context_of(experiment, overrides, "local", "")
    start = context.store.read_json(f"runs/{run}/start.json")
    before = stored_evaluation(context, context.store.artifact(start["uri"]), "test")
    return Outcome(name, before, stored_evaluation(context, final_policy(context.store, run), "test"))


def table(outcomes: list[Outcome]) -> Table:
    """Before, after and the paired difference, one row a run."""
    shown = Table("run", "problems", "before", "after", "after - before", "95 % interval, paired")
    for found in outcomes:
        difference, (low, high) = intervals.improvement(found.before.solved, found.after.solved)
        shares = f"{found.before.success:.3f}", f"{found.after.success:.3f}", f"{difference:+.3f}"
        shown.add_row(found.name, str(len(found.after.solved)), *shares, f"{low:+.3f} to {high:+.3f}")
    return shown


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
