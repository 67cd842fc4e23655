"""Number of executed tool calls until vaults open, with forks by entropy, at random, or none.

    python -m benchmarks.arpo [--seeds 1 2 3 4 5] [--steps 12] [--development 100]
        [--arms entropy random never paper]

All arms play 16 episodes per problem, and share one warm start per seed. `random` forks at the mean
rate of `entropy` on the development seed. `paper` is `entropy` with the settings of the paper. The
same command continues interrupted runs (`runs/arpo-...`), seed by seed, and prints each finished
run. The number of calls until a success of 0.8 is interpolated between evaluations on the
validation problems. Ratios are paired by seed. They have a t-interval of their logarithms, and an
interval over DRAWS random draws of the validation problems. As a control, forks are drawn again
with permuted entropies; these forks must be distributed like those of `random`.
"""

import math
import random
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, quantiles, stdev

from scipy.stats import chisquare

from agentfly_core.experiment.run_layout import RunLayout, rollouts, step_layout
from agentfly_core.experiment.task import goal_of
from agentfly_core.pipeline.playing import fork_rule
from agentfly_core.records.intervals import student
from agentfly_core.records.parquet import EPISODES, read_trajectories
from agentfly_core.reports.show.sources import evaluations, solved_held_out
from agentfly_core.rollout.history.branching import ForkRule
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.store import Store
from benchmarks import harness
from flows.store import store_at

GOAL = 0.8
DRAWS = 1000
COLUMNS = (
    "arm",
    "forks per decision",
    "calls per step",
    "calls until 0.8, by seed",
    "ratio to never",
    "95 % by seed",
    "95 % by problem",
)


@dataclass(frozen=True)
class Training:
    """The measurements of a training run.

    `solved` has the solved share of each validation problem, by step. `calls` has the number of
    executed tool calls in each step. `decisions` is how often the run decided whether to fork an
    episode, and `forks` how often it forked one.
    """

    solved: Mapping[int, Mapping[str, float]]
    calls: Mapping[int, float]
    decisions: float
    forks: float

    @property
    def problems(self) -> Sequence[str]:
        """The ids of all validation problems with a score in any step."""
        return [*dict.fromkeys(one for own in self.solved.values() for one in own)]

    @property
    def until_goal(self) -> float:
        """The number of executed tool calls until the mean validation success is GOAL."""
        return self.until(self.problems)

    def until(self, problems: Iterable[str]) -> float:
        """Return the number of executed tool calls until the mean success on these problems is
        GOAL.

        The number is interpolated between evaluations. It is infinite if the run does not reach
        GOAL.
        """
        drawn, steps = [*problems], sorted(self.solved)
        spent = {step: sum(self.calls[one] for one in range(1, step + 1)) for step in steps}
        # a problem lacks a score in a step if its episodes failed
        success = {
            step: fmean(own[one] for one in drawn if one in own)
            for step, own in self.solved.items()
        }
        for before, after in pairwise(steps):
            low, high = success[before], success[after]
            if low >= GOAL:
                return spent[before]
            if high >= GOAL:
                share = (GOAL - low) / (high - low)
                return spent[before] + share * (spent[after] - spent[before])
        return math.inf


def main() -> None:
    """Train the missing runs, and print the table and the result of the control."""
    every = ["entropy", "random", "never", "paper"]
    parser = harness.parser(__doc__, seeds=[1, 2, 3, 4, 5], steps=12, development=100, arms=every)
    options = parser.parse_args()
    tuned = trained("entropy", (), options.development, options.steps)
    rate = tuned.forks / tuned.decisions
    arms = {arm: settings_of_arms(rate)[arm] for arm in options.arms}
    trainings: dict[str, list[Training]] = {arm: [] for arm in arms}
    for seed in options.seeds:
        for arm, settings in arms.items():
            trainings[arm].append(trained(arm, settings, seed, options.steps))
    harness.show(COLUMNS, [row(arm, trainings) for arm in arms])
    to_random = ratio(trainings["entropy"], trainings["random"])
    print("entropy to random: {}, {} by seed, {} by problem".format(*to_random))
    control([f"arpo-entropy-{seed}" for seed in options.seeds])


def settings_of_arms(rate: float) -> dict[str, tuple[str, ...]]:
    """Return the settings of each arm (a way to fork episodes), by name.

    `rate` is the probability of a fork in the arm `random`.
    """
    branching = "rollout.branching"
    paper = (f"{branching}.alpha=0.5", f"{branching}.beta=0.2")
    return {
        "entropy": (),
        "random": (f"{branching}.mode=random", f"{branching}.alpha={rate:.3f}"),
        "never": (f"{branching}.mode=never",),
        "paper": paper,
    }


def trained(arm: str, settings: Sequence[str], seed: int, steps: int) -> Training:
    """Train a run if it is missing, print its number of calls until GOAL, and return the run."""
    run = f"arpo-{arm}-{seed}"
    changes = [*settings, f"seed={seed}", f"steps={steps}", "data.test=8"]
    command = [sys.executable, "-m", "flows", "train", "arpo", *changes, "--run", run]
    subprocess.run(command, check=True, stdout=sys.stderr)
    training = read(store_at(""), run, steps)
    success = ", ".join(f"{fmean(one.values()):.2f}" for _, one in sorted(training.solved.items()))
    print(f"{run}: {training.until_goal:.0f} calls; validation success {success}", flush=True)
    return training


def read(store: Store, run: str, steps: int) -> Training:
    """Read a finished run."""
    record = known_run(store, run)
    settings = recorded_settings(record)
    pairs_of = evaluations(store, record, run, "validation")
    pairs = {step: each for step in range(steps + 1) if (each := pairs_of(step))}
    goal = goal_of(settings.goal, settings.rewards)
    metrics = {}
    for step in range(1, steps + 1):
        content = store.read_json(step_layout(store, run, step).metrics)
        assert content, f"the run {run} lacks step {step}"
        metrics[step] = content["metrics"]
    return Training(
        {step: solved_held_out(each, goal) for step, each in pairs.items()},
        {step: each["branching/executed_calls"] for step, each in metrics.items()},
        sum(each.get("branching/decisions", 0) for each in metrics.values()),
        sum(each.get("branching/forks", 0) for each in metrics.values()),
    )


def row(arm: str, trainings: Mapping[str, Sequence[Training]]) -> list[str]:
    """Return the table row of an arm."""
    mine = trainings[arm]
    decisions = sum(one.decisions for one in mine)
    forks = sum(one.forks for one in mine) / decisions if decisions else 0.0
    calls = fmean(call for one in mine for call in one.calls.values())
    until = ", ".join(f"{one.until_goal:.0f}" for one in mine)
    return [arm, f"{forks:.3f}", f"{calls:.0f}", until, *ratio(mine, trainings["never"])]


def ratio(some: Sequence[Training], others: Sequence[Training]) -> tuple[str, str, str]:
    """Compare the numbers of calls until GOAL of two arms.

    Returns three texts: the geometric mean of the ratios, paired by seed, its t-interval over
    seeds, and its bootstrap interval over problems.
    """
    pairs = [*zip(some, others, strict=True)]
    logs = [log_ratio(a.until_goal, b.until_goal) for a, b in pairs]
    if not all(map(math.isfinite, logs)):
        return "-", "-", "-"
    middle, by_seed = fmean(logs), "-"
    if len(logs) > 1:
        reach = student(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
        by_seed = f"{math.exp(middle - reach):.2f} to {math.exp(middle + reach):.2f}"
    low, high = by_problem(pairs)
    return f"{math.exp(middle):.2f}", by_seed, f"{low:.2f} to {high:.2f}"


def by_problem(pairs: Sequence[tuple[Training, Training]]) -> tuple[float, float]:
    """Return the bootstrap interval of the mean ratio of calls.

    Each pair has the runs of two arms with the same seed. The problems of each pair are resampled.
    """
    draw, ratios = random.Random(1), list[float]()
    for _ in range(DRAWS):
        logs = []
        for a, b in pairs:
            problems = draw.choices(a.problems, k=len(a.problems))
            logs.append(log_ratio(a.until(problems), b.until(problems)))
        ratios.append(math.exp(fmean(logs)))
    low, *_, high = quantiles(ratios, n=40)
    return low, high


def log_ratio(calls: float, others: float) -> float:
    """Return the logarithm of the ratio of two numbers of calls, or 0 if both are infinite."""
    return 0.0 if calls == others else math.log(calls) - math.log(others)


def control(runs: Sequence[str]) -> None:
    """Print p-values of a test: do forks by entropy fall on the same turns as random forks?

    The forks are drawn again, once by the recorded and once by permuted entropies. They are
    compared with random forks at the same mean rate.
    """
    store = store_at("")
    branching = recorded_settings(known_run(store, runs[0])).rollout.branching
    assert branching, "the arm `entropy` forks"
    start = store.artifact(store.read_json(RunLayout(runs[0]).start)["uri"])
    rule = fork_rule(branching, len(harness.tokenizer_of(store.open(start))))
    rises = [rise for run in runs for rise in entropy_rises(store, run, branching.k)]
    pool, draw = [rise for chain in rises for rise in chain], random.Random(1)
    draw.shuffle(pool)
    rest = iter(pool)
    permuted = [[next(rest) for _ in chain] for chain in rises]
    for name, chains in {"recorded": rises, "permuted": permuted}.items():
        print(f"{name} entropies fork as random does: p = {p_value(rule, chains, draw):.2g}")


def entropy_rises(store: Store, run: str, k: int) -> Iterator[list[float]]:
    """Yield a list for each episode that is not a fork.

    It has the mean entropy of the first `k` tokens of each reply after a tool call, minus the same
    mean of the episode's first reply.
    """
    for step in RunLayout(run).steps(store):
        scored = store.artifact(step_layout(store, run, step).scored)
        for shard in rollouts(scored):
            for one in read_trajectories(store.open(shard) / EPISODES):
                if one.branch is None and all(turn.sampled[0].entropies for turn in one.turns):
                    means = [fmean(turn.sampled[0].entropies[:k]) for turn in one.turns]
                    yield [mean - means[0] for mean in means[1:]]


def p_value(rule: ForkRule, rises: Sequence[Sequence[float]], draw: random.Random) -> float:
    """Return the p-value of a chi-square test of the turns in which episodes fork first.

    The expected turns come from random forks at the mean rate. `rises` has the differences of
    entropy of each episode.
    """
    chances = [[rule.probability([0.0], [rise]) for rise in chain] for chain in rises]
    rate = fmean(chance for chain in chances for chance in chain)
    turns, expected = Counter[int](), defaultdict[int, float](float)
    for chain in chances:
        forks = (turn for turn, chance in enumerate(chain) if draw.random() < chance)
        turns[next(forks, -1)] += 1
        for turn in range(len(chain)):
            expected[turn] += rate * (1 - rate) ** turn
        expected[-1] += (1 - rate) ** len(chain)
    places = sorted(expected)
    test = chisquare([turns[one] for one in places], [expected[one] for one in places])
    return float(test.pvalue)


if __name__ == "__main__":
    main()
