"""Table of a score on test problems before and after training, with a permuted control."""

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import NamedTuple

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.records.intervals import student
from agentfly_core.runs.summary import Evaluations
from agentfly_core.store.artifact import Pointer
from benchmarks import harness
from benchmarks.learning import COLUMNS, CONTROL, row, run_of
from flows.experiments import load_experiment

ByProblem = Mapping[str, float]
"""The score of each problem, by the problem's id."""


class Learned(NamedTuple):
    """The scores before and after a run, and the CPU minutes of its training as text."""

    before: ByProblem
    after: ByProblem
    cpu: str


def show(experiment: str, score: str, seeds: Sequence[int]) -> None:
    """Train the missing runs and print the table.

    The interval of a row is paired by problem. The line below the table has the mean gain over all
    seeds, with its t-interval.
    """
    results = {f"seed {seed}": learned(experiment, score, [], seed) for seed in seeds}
    gains = [fmean(run.after.values()) - fmean(run.before.values()) for run in results.values()]
    before, after, _ = zip(*results.values(), strict=True)
    control = learned(experiment, score, [CONTROL], seeds[0])
    together = Learned(united(before), united(after), "")
    results |= {"all seeds": together, "permuted rewards": control}
    rows = [[*row(name, run.before, run.after), run.cpu] for name, run in results.items()]
    harness.show((*COLUMNS, "CPU minutes"), rows, note=by_seed(gains))


def learned(experiment: str, score: str, changes: Sequence[str], seed: int) -> Learned:
    """Train a run if it is missing, and return its scores. `changes` are further settings."""
    name = f"permuted rewards, seed {seed}" if changes else f"seed {seed}"
    run, overrides = run_of(experiment, name), [f"seed={seed}", *changes]
    harness.trained(experiment, overrides, run)
    loaded = load_experiment(experiment, overrides, "local", "")
    before, after = scores_of(loaded, run, score)
    return Learned(before, after, harness.cpu_minutes(loaded.store, run))


def scores_of(experiment: Experiment, run: str, score: str) -> tuple[ByProblem, ByProblem]:
    """Return the scores of a finished run on the test problems, before and after training."""
    start = experiment.store.read_json(RunLayout(run).start)
    policies = experiment.store.artifact(start["uri"]), final_policy(experiment.store, run)
    stored = Evaluations(experiment)
    before, after = (_scores(stored, policy, experiment.dataset, score) for policy in policies)
    return before, after


def by_seed(gains: Sequence[float]) -> str:
    """Format the mean of the gains of all seeds. With several seeds, add its t-interval."""
    mean = fmean(gains)
    if len(gains) == 1:
        return f"{mean:+.3f} (one seed)"
    half = student(len(gains) - 1) * stdev(gains) / len(gains) ** 0.5
    return f"{mean:+.3f}, {mean - half:+.3f} to {mean + half:+.3f} by seed"


def united(seeds: Sequence[ByProblem]) -> ByProblem:
    """Join the scores of all seeds in one dictionary. Problems of different seeds stay separate."""
    return {f"{n} {name}": value for n, own in enumerate(seeds) for name, value in own.items()}


def _scores(stored: Evaluations, policy: Pointer, data: Pointer, score: str) -> ByProblem:
    return {
        one.problem.id: scored.rewards[score]
        for one, scored in stored.episodes(policy, "test", data)
        if one.turns  # leave out speakers without replies
    }
