"""Does the quickstart learn, and from its rewards? Three seeds, and one with permuted rewards.

    python -m benchmarks.learning [--experiment quickstart] [--seeds 1 2 3]

Each run is an ordinary one (`runs/learning-...`): the same command continues it after an
interruption, and only reads runs that are finished. Success is measured on the experiment's test
problems at its temperature; the interval of after - before is paired by problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentfly_core.runs import intervals
from benchmarks import harness
from benchmarks.harness import Evaluated

CONTROL = "algorithm.use=benchmarks.permuted:PermutedGRPO"
COLUMNS = ("run", "problems", "before", "after", "after - before", "95 % interval, paired")


def main() -> None:
    """Train the runs that are missing and print the table."""
    options = harness.parser(__doc__, experiment="quickstart", seeds=[1, 2, 3]).parse_args()
    settings = {f"seed {seed}": [f"seed={seed}"] for seed in options.seeds}
    first = options.seeds[0]
    settings[f"permuted rewards, seed {first}"] = [f"seed={first}", CONTROL]
    results = {}
    for name, overrides in settings.items():
        run = f"learning-{options.experiment}-{name.replace(' ', '-').replace(',', '')}"
        results[name] = harness.trained(options.experiment, overrides, run)
    harness.show(COLUMNS, rows(results))


def rows(results: Mapping[str, Evaluated]) -> Iterator[list[str]]:
    """Before, after and the paired difference, one row a run."""
    for name, (before, after) in results.items():
        difference, (low, high) = intervals.improvement(before.solved, after.solved)
        shares = f"{before.success:.3f}", f"{after.success:.3f}", f"{difference:+.3f}"
        yield [name, str(len(after.solved)), *shares, f"{low:+.3f} to {high:+.3f}"]


if __name__ == "__main__":
    main()
