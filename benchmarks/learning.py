"""Does the quickstart learn from its rewards? Three seeds, and one with permuted rewards.

    python -m benchmarks.learning [--experiment quickstart] [--seeds 1 2 3]

The same command continues interrupted runs (`runs/learning-...`) and reads finished runs. Success
is measured on the experiment's test problems at its temperature. The interval of after - before is
paired by problem. To pool seeds, each problem gets its mean over the seeds that played it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from agentfly_core.reports.compare.seed_intervals import difference
from agentfly_core.runs.summary import Evaluation
from benchmarks import harness
from benchmarks.harness import Evaluated

CONTROL = "algorithm.use=benchmarks.permuted:PermutedGRPO"
COLUMNS = ("run", "problems", "before", "after", "after - before", "95 % interval, paired")


def main() -> None:
    """Train the runs that are missing and print the table."""
    options = harness.parser(__doc__, experiment="quickstart", seeds=[1, 2, 3]).parse_args()
    results = learned(options.experiment, options.seeds)
    seeds = [pair for name, pair in results.items() if name.startswith("seed")]
    before, after = map(pooled, zip(*seeds, strict=True))
    harness.show(COLUMNS, [*rows(results), row("all seeds", before, after)])


def learned(experiment: str, seeds: Sequence[int]) -> dict[str, Evaluated]:
    """Train the missing runs. Return the evaluations of all runs by the name of the table row.

    There is a run for each seed, and a run of the first seed with permuted rewards.
    """
    settings = {f"seed {seed}": [f"seed={seed}"] for seed in seeds}
    settings[f"permuted rewards, seed {seeds[0]}"] = [f"seed={seeds[0]}", CONTROL]
    return {
        name: harness.trained(experiment, overrides, run_of(experiment, name))
        for name, overrides in settings.items()
    }


def run_of(experiment: str, name: str) -> str:
    """Return the name of the run of a table row, such as `learning-quickstart-seed-1`."""
    return f"learning-{experiment}-{name.replace(' ', '-').replace(',', '')}"


def rows(results: Mapping[str, Evaluated]) -> Iterator[list[str]]:
    """Yield a table row for each run: success before and after, and the paired difference."""
    for name, (before, after) in results.items():
        yield row(name, before.solved, after.solved)


def row(name: str, before: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    """Return a table row. `before` and `after` have the solved share of each problem's episodes."""
    gain = difference([before], [after])
    low, high = gain.interval
    shares = f"{fmean(before.values()):.3f}", f"{fmean(after.values()):.3f}", f"{gain.value:+.3f}"
    return [name, str(len(after)), *shares, f"{low:+.3f} to {high:+.3f}"]


def pooled(evaluations: Sequence[Evaluation]) -> dict[str, float]:
    """Return the mean solved share of each problem, over all evaluations that contain the
    problem.
    """
    shares: dict[str, list[float]] = defaultdict(list)
    for evaluation in evaluations:
        for problem, share in evaluation.solved.items():
            shares[problem].append(share)
    return {problem: fmean(each) for problem, each in shares.items()}


if __name__ == "__main__":
    main()
