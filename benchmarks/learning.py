"""Does the quickstart learn, and from its rewards? Three seeds, and one with permuted rewards.

    python -m benchmarks.learning [--experiment quickstart] [--seeds 1 2 3]

Each run is an ordinary one (`runs/learning-...`): the same command continues it after an
interruption, and only reads runs that are finished. Success is measured on the experiment's test
problems at its temperature; the interval of after - before is paired by problem.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from agentfly_core.runs import intervals
from benchmarks import harness
from benchmarks.harness import Evaluated

CONTROL = "algorithm.use=benchmarks.permuted:PermutedGRPO"
COLUMNS = ("run", "problems", "before", "after", "after - before", "95 % interval, paired")


def main() -> None:
    """Train the runs that are missing and print the table."""
    options = harness.parser(__doc__, experiment="quickstart", seeds=[1, 2, 3]).parse_args()
    harness.show(COLUMNS, rows(learned(options.experiment, options.seeds)))


def learned(experiment: str, seeds: Sequence[int]) -> dict[str, Evaluated]:
    """What each seed's run learned, and what the first seed's did from permuted rewards, by name;
    the runs that are missing are trained.
    """
    settings = {f"seed {seed}": [f"seed={seed}"] for seed in seeds}
    settings[f"permuted rewards, seed {seeds[0]}"] = [f"seed={seeds[0]}", CONTROL]
    return {
        name: harness.trained(experiment, overrides, run_of(experiment, name))
        for name, overrides in settings.items()
    }


def run_of(experiment: str, name: str) -> str:
    """The run of a row of the table: `learning-quickstart-seed-1`."""
    return f"learning-{experiment}-{name.replace(' ', '-').replace(',', '')}"


def rows(results: Mapping[str, Evaluated]) -> Iterator[list[str]]:
    """Before, after and the paired difference, one row a run."""
    for name, (before, after) in results.items():
        difference, (low, high) = intervals.improvement(before.solved, after.solved)
        shares = f"{before.success:.3f}", f"{after.success:.3f}", f"{difference:+.3f}"
        yield [name, str(len(after.solved)), *shares, f"{low:+.3f} to {high:+.3f}"]


if __name__ == "__main__":
    main()
