"""HumanRank of a nano model's pipelines before and after training, and after permuted rewards.

    python -m benchmarks.mle [--seeds 1 2 3]

The same command continues interrupted runs (`runs/learning-mle-...`). The competitions are those of
the test problems, drawn anew for each seed. The interval of a row is paired by problem; the line
below the table has the mean gain with its t-interval over seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev

from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.records.intervals import student
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.artifact import Pointer
from benchmarks import harness
from benchmarks.learning import COLUMNS, CONTROL, row, run_of
from flows.experiments import load_experiment

Ranks = Mapping[str, float]
"""HumanRank by competition."""


def main() -> None:
    """Train the missing runs and print the table."""
    seeds = harness.parser(__doc__, seeds=[1, 2, 3]).parse_args().seeds
    results = {f"seed {seed}": ranks([f"seed={seed}"], f"seed {seed}") for seed in seeds}
    before, after = zip(*results.values(), strict=True)
    gains = [fmean(own[1].values()) - fmean(own[0].values()) for own in results.values()]
    control = f"permuted rewards, seed {seeds[0]}"
    results["all seeds"] = united(before), united(after)
    results[control] = ranks([f"seed={seeds[0]}", CONTROL], control)
    rows = [row(name, *result) for name, result in results.items()]
    harness.show(COLUMNS, rows, note=by_seed(gains) if len(gains) > 1 else "")


def ranks(overrides: Sequence[str], name: str) -> tuple[Ranks, Ranks]:
    """The ranks before and after a run, which is trained if it is missing."""
    run = run_of("mle", name)
    harness.trained("mle", overrides, run)
    loaded = load_experiment("mle", overrides, "local", "")
    start = loaded.store.read_json(RunLayout(run).start)
    policies = loaded.store.artifact(start["uri"]), final_policy(loaded.store, run)
    before, after = (_ranks(Evaluations(loaded), policy, loaded.dataset) for policy in policies)
    return before, after


def by_seed(gains: Sequence[float]) -> str:
    """The mean of two or more seeds with its t-interval."""
    mean, half = fmean(gains), student(len(gains) - 1) * stdev(gains) / len(gains) ** 0.5
    return f"{mean:+.3f}, {mean - half:+.3f} to {mean + half:+.3f} by seed"


def united(seeds: Iterable[Ranks]) -> Ranks:
    """The ranks of all seeds; their competitions differ."""
    return {name: rank for own in seeds for name, rank in own.items()}


def _ranks(stored: Evaluations, policy: Pointer, data: Pointer) -> Ranks:
    episodes, scores = stored.episodes(policy, "test", data)
    return {
        one.problem.id: scored.rewards["human_rank"]
        for one, scored in zip(episodes, scores, strict=True)
    }


if __name__ == "__main__":
    main()
