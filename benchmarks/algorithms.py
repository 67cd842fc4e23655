"""Does every algorithm learn? Trains the quickstart with each algorithm and three seeds.

    python -m benchmarks.algorithms [--algorithms grpo ppo ...] [--seeds 1 2 3] [--steps 10]
    [--problems 32]

The runs (`runs/algorithm-...`) have the algorithm's default settings, and otherwise those of the
experiment. The same command continues interrupted runs and reads finished runs. All algorithms
share a seed's warm start. Success is measured on the experiment's test problems. The interval of
after - before is paired by problem, over all seeds together.
"""

import pkgutil
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.progress import track

from agentfly_core import algorithms
from agentfly_core.reports.compare.seed_intervals import difference
from benchmarks import harness
from benchmarks.harness import Evaluated

EXPERIMENT = "quickstart"
WITHOUT_REWARDS = {"sft"}
COLUMNS = (
    "algorithm",
    "before, by seed",
    "after, by seed",
    "after - before",
    "95 % interval, paired",
)


def main() -> None:
    """Train the runs that are missing and print the table."""
    names = {module.name for module in pkgutil.iter_modules(algorithms.__path__)}
    rewarded = sorted(names - WITHOUT_REWARDS)
    parser = harness.parser(__doc__, seeds=[1, 2, 3], steps=10, problems=32)
    parser.add_argument(
        "--algorithms", nargs="+", default=rewarded, choices=rewarded, metavar="NAME"
    )
    options = parser.parse_args()
    size = [f"steps={options.steps}", f"rollout.problems={options.problems}"]
    results: dict[str, list[Evaluated]] = {name: [] for name in options.algorithms}
    runs = [(seed, name) for seed in options.seeds for name in options.algorithms]
    for seed, name in track(runs, "runs", console=Console(stderr=True)):
        overrides = [f"algorithm={name}", f"seed={seed}", *size]
        results[name].append(harness.trained(EXPERIMENT, overrides, f"algorithm-{name}-{seed}"))
    harness.show(COLUMNS, rows(results))


def rows(results: Mapping[str, Sequence[Evaluated]]) -> Iterator[list[str]]:
    """Yield a table row for each algorithm.

    It has the success before and after training for each seed, and the mean difference over all
    seeds.
    """
    for name, seeds in results.items():
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        for seed, run in enumerate(seeds):
            before |= {f"{seed}/{problem}": solved for problem, solved in run.before.solved.items()}
            after |= {f"{seed}/{problem}": solved for problem, solved in run.after.solved.items()}
        gain = difference([before], [after])
        low, high = gain.interval
        befores = "  ".join(f"{run.before.success:.3f}" for run in seeds)
        afters = "  ".join(f"{run.after.success:.3f}" for run in seeds)
        yield [name, befores, afters, f"{gain.value:+.3f}", f"{low:+.3f} to {high:+.3f}"]


if __name__ == "__main__":
    main()
