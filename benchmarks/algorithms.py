"""Does every algorithm learn? Each of them on the quickstart's problem, with three seeds.

    .venv/bin/python benchmarks/algorithms.py [--algorithms grpo ppo ...] [--seeds 1 2 3] [--steps 10] [--problems 32]

Each run is an ordinary one (`runs/algorithm-...`) with the algorithm's own defaults and the experiment's other
settings: interrupted, the same command goes on; finished runs are only read. The warm start of a seed is shared.
Held-out: the experiment's test problems; the interval of after - before is paired by problem, over all seeds together.
"""

from __future__ import annotations

import argparse
import pkgutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from agentfly_core import algorithms
from agentfly_core.runs import intervals
from agentfly_core.runs.run import final_policy
from agentfly_core.runs.summary import Evaluation, stored_evaluation
from flows.context import context_of

EXPERIMENT = "quickstart"
NOT_BY_REWARD = {"sft"}


@dataclass(frozen=True)
class Pair:
    """What a run's policy solved before and after: `Pair(before, after)`."""

    before: Evaluation
    after: Evaluation


def main() -> None:
    """Run what is missing and print the table."""
    known = sorted({module.name for module in pkgutil.iter_modules(algorithms.__path__)} - NOT_BY_REWARD)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--algorithms", nargs="+", default=known, choices=known, metavar="NAME")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--problems", type=int, default=32)
    options = parser.parse_args()
    runs = [(name, seed) for seed in options.seeds for name in options.algorithms]
    size = [f"steps={options.steps}", f"rollout.problems={options.problems}"]
    found = {
        (name, seed): trained(name, seed, size) for name, seed in track(runs, "runs", console=Console(stderr=True))
    }
    Console().print(table({name: [found[name, seed] for seed in options.seeds] for name in options.algorithms}))


def trained(algorithm: str, seed: int, size: list[str]) -> Pair:
    """Train, or read what was trained."""
    overrides, run = [f"algorithm={algorithm}", f"seed={seed}", *size], f"algorithm-{algorithm}-{seed}"
    command = [sys.executable, "-m", "flows", "train", EXPERIMENT, *overrides, "--run", run]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    context = context_of(EXPERIMENT, overrides, "local", "")
    start = context.store.read_json(f"runs/{run}/start.json")
    before = stored_evaluation(context, context.store.artifact(start["uri"]), "test")
    return Pair(before, stored_evaluation(context, final_policy(context.store, run), "test"))


def table(found: dict[str, list[Pair]]) -> Table:
    """One row an algorithm: before and after by seed, and the difference over all of them."""
    shown = Table("algorithm", "before, by seed", "after, by seed", "after - before", "95 % interval, paired")
    for name, pairs in found.items():
        before = {f"{i}/{p}": value for i, pair in enumerate(pairs) for p, value in pair.before.solved.items()}
        after = {f"{i}/{p}": value for i, pair in enumerate(pairs) for p, value in pair.after.solved.items()}
        difference, (low, high) = intervals.improvement(before, after)
        shares = ["  ".join(f"{getattr(p, when).success:.3f}" for p in pairs) for when in ("before", "after")]
        shown.add_row(name, *shares, f"{difference:+.3f}", f"{low:+.3f} to {high:+.3f}")
    return shown


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    main()
