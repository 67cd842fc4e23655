"""Does promotion choose the right policies? 200 simulated nights with a known true success.

    python -m benchmarks.nights [SEEDS [key=value ...]]

A policy solves a problem with a probability that depends on its skill, the problem's difficulty and
a random bias of policy and problem. Each night a challenger meets the champion on the same 1,000
test problems of the quickstart. After a win, both play as many fresh problems as the quickstart
has. The code of real nights judges them. For each of SEEDS seeds (5) the benchmark prints:

- the share of promoted policies that are equal to the champion,
- the same with 30 % of a challenger's failures unscored,
- the largest fall of the champion's true success below its best, if most nights make it worse,
- the share of promoted true gains of 0.05.

`promotion.confirmation=split data.test=2000` changes the quickstart. The command ends with 1 if,
over all seeds, more than 5 % of equal policies or less than 80 % of the gains were promoted, or if
the champion fell by more than 0.05.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from agentfly_core.config.experiment import Settings
from agentfly_core.config.loading import read
from agentfly_core.datasets.arithmetic import arithmetic
from agentfly_core.reports.nights.held_out import GOAL, TOKENS, UNREADABLE_CALLS, HeldOut
from agentfly_core.reports.nights.promotion_gate import BothHeldOut, Verdict, confirmed_verdict, way
from agentfly_core.system.formats import hashing
from benchmarks import harness

NIGHTS, GAIN, SPREAD, HABIT, SILENT = 200, 0.05, 2.0, 0.5, 0.3
STARTS = (0.6, 0.75, 0.9)
EQUAL, FALL, POWER = 0.05, GAIN, 0.8
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Policy:
    """A simulated policy with a known true success: `Policy(0.87, name=12)`.

    `name` is the seed of its random biases on problems. `silent` is the share of its failed
    episodes without a score.
    """

    success: float
    name: int
    silent: float = 0.0

    def solves(self, difficulty: Numbers, problems: str) -> Numbers:
        """Return the policy's probability to solve each of these problems."""
        habit = draw("habit", self.name, problems).normal(0.0, HABIT, len(difficulty))
        return logistic(skill(self.success) - difficulty + habit)


def draw(*parts: int | str) -> np.random.Generator:
    """Return a random generator that is seeded with these parts of a name."""
    return np.random.default_rng(hashing.seed(*parts))


def logistic(x: Numbers) -> Numbers:
    return 1.0 / (1.0 + np.exp(-x))


@cache
def skill(success: float) -> float:
    """Return the skill that gives this mean success over the distribution of problems."""
    quantiles = np.sort(draw("population").normal(0.0, np.hypot(SPREAD, HABIT), 20_000))
    low, high = -12.0, 12.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if logistic(middle - quantiles).mean() < success else (low, middle)
        )
    return low


@lru_cache(maxsize=16)
def played(policy: Policy, problems: str, count: int) -> HeldOut:
    """Simulate one episode for each of `count` problems, and return the results.

    A policy always has the same results on the same problems.
    """
    difficulty = draw("difficulty", problems).normal(0.0, SPREAD, count)
    chance = draw("episodes", policy.name, problems)
    solved = (chance.random(count) < policy.solves(difficulty, problems)).astype(float)
    tokens = np.ceil(np.exp(chance.normal(4.0 + 0.2 * difficulty, 0.5)))
    unreadable = (chance.random(count) < 0.02).astype(float)
    unscored = (solved == 0) & (chance.random(count) < policy.silent)
    return HeldOut(
        problems,
        {
            f"{problems}-{number}": {}
            if lost
            else {
                GOAL: float(goal),
                "reward/exact": float(goal),
                TOKENS: float(length),
                UNREADABLE_CALLS: float(share),
            }
            for number, (goal, length, share, lost) in enumerate(
                zip(solved, tokens, unreadable, unscored, strict=True)
            )
        },
    )


@dataclass(frozen=True, slots=True)
class Gate:
    """The decision about promotion in an experiment: `Gate(settings, 3, 1560)`.

    `seed` determines the problems. `fresh` is the number of fresh problems, which the experiment
    does not already have.
    """

    settings: Settings
    seed: int
    fresh: int

    def verdict(self, champion: Policy, challenger: Policy, earlier: int) -> Verdict:
        """Judge two policies in the same way as after a real night, and return the verdict.

        `earlier` is the number of confirmations in earlier nights.
        """
        settings = self.settings.promotion
        how = way(settings.confirmation, [self.settings.data.use])

        def both(problems: str, count: int) -> BothHeldOut:
            return played(champion, problems, count), played(challenger, problems, count)

        return confirmed_verdict(
            how,
            both(f"test-{self.seed}", self.settings.data.test),
            {},
            lambda: both(f"fresh-{self.seed}-{earlier}", self.fresh),
            settings,
        )


def champions(
    gate: Gate, begin: float, mean: float, spread: float, nights: int = NIGHTS
) -> Iterator[Policy]:
    """Simulate nights, and yield the champion after each night.

    The first champion has the true success `begin`. The challenger of a night has the champion's
    true success plus a normally distributed step with this mean and spread.
    """
    champion, earlier = Policy(begin, name=0), 0
    steps = draw("steps", gate.seed).normal(mean, spread, nights)
    for night, step in enumerate(steps, 1):
        true = float(np.clip(champion.success + step, 0.02, 0.98))
        challenger = Policy(true, night)
        verdict = gate.verdict(champion, challenger, earlier)
        earlier += verdict.comparisons[-1].name == "confirmation"
        champion = challenger if verdict.promoted else champion
        yield champion


def promotions(policies: list[Policy]) -> int:
    """Return the number of promotions in a sequence of champions, which `champions` has
    returned.
    """
    return len({policy.name for policy in policies} - {0})


def greatest_fall(policies: list[Policy]) -> float:
    """Return the largest fall of the champion's true success below its best so far."""
    true = np.array([policy.success for policy in policies])
    return float((np.maximum.accumulate(true) - true).max())


def gains(
    gate: Gate, success: float, gain: float = GAIN, nights: int = NIGHTS, silent: float = 0.0
) -> int:
    """Count the nights in which a challenger with this gain in true success is promoted.

    Each night has its own champion and test problems. The champion has the true success `success`.
    A share `silent` of the challenger's failed episodes lacks a score.
    """
    promoted = 0
    for night in range(nights):
        own = Gate(gate.settings, hashing.seed(gate.seed, night), gate.fresh)
        old, new = Policy(success, 2 * night), Policy(success + gain, 2 * night + 1, silent)
        promoted += own.verdict(old, new, 0).promoted
    return promoted


def fresh_problems(settings: Settings) -> int:
    """Return the number of fresh arithmetic problems that are not already in the quickstart."""
    own, other = settings.data, settings.with_fresh_problems(0).data
    own_problems = arithmetic(settings.seed, own.train, own.validation, own.test)
    fresh = arithmetic(other.seed or 0, other.train, other.validation, other.test)["test"]
    return len({p.id for p in fresh} - {p.id for split in own_problems.values() for p in split})


@dataclass(frozen=True, slots=True)
class Found:
    """The results of all nights of one seed: `Found(0.005, 0.0, {0.6: 0.82, 0.9: 1.0}, ...)`.

    - `equal` is the share of nights that promote a challenger with the same true success.
    - `fall` is the largest fall of the champion's true success below its best value.
    - `power` is the share of nights that promote a gain, by the true success before the gain.
    - `said` is the summary that is printed.
    - `silent` is the same share as `equal`, for challengers with failed episodes without a score.
      The limit on the share of episodes without a score is removed for it.
    """

    equal: float
    fall: float
    power: Mapping[float, float]
    said: str
    silent: float = 0.0

    @classmethod
    def by(cls, gate: Gate, nights: int = NIGHTS) -> Found:
        """Simulate this many nights of each kind, and return the results."""
        equal = promotions([*champions(gate, 0.85, 0.0, 0.0, nights)]) / nights
        changing = [*champions(gate, 0.6, -0.01, 0.02, nights)]
        power = {success: gains(gate, success, nights=nights) / nights for success in STARTS}
        alone = gate.settings.promotion.model_copy(update={"unscored": None})
        settings = gate.settings.model_copy(update={"promotion": alone})
        unguarded = Gate(settings, gate.seed, gate.fresh)
        silent = gains(unguarded, 0.85, 0.0, nights, SILENT) / nights
        summary = (
            f"{equal:.1%} of equal policies promoted, {silent:.1%} with unscored failures; "
            f"true success {changing[0].success:.3f} to {changing[-1].success:.3f} in "
            f"{promotions(changing)} promotions, at most {greatest_fall(changing):.3f} below its "
            f"best; a gain of {GAIN} is promoted in "
            f"{', '.join(f'{share:.0%} at {s}' for s, share in power.items())}"
        )
        return cls(equal, greatest_fall(changing), power, summary, silent)


def faults(gates: Sequence[Found]) -> list[str]:
    """Return the goals that were missed, as texts. `gates` has the results of each seed."""
    equal, fall = fmean(one.equal for one in gates), max(one.fall for one in gates)
    power = {success: fmean(one.power[success] for one in gates) for success in STARTS}
    wrong = [f"{equal:.1%} of equal policies promoted, at most {EQUAL:.0%} allowed"] * (
        equal > EQUAL
    )
    silent = fmean(one.silent for one in gates)
    wrong += [f"{silent:.1%} with unscored failures promoted, at most {EQUAL:.0%} allowed"] * (
        silent > EQUAL
    )
    wrong += [f"the champion fell by {fall:.3f}, at most {FALL} allowed"] * (fall > FALL)
    return wrong + [
        f"{share:.0%} of gains from {success} promoted, at least {POWER:.0%} expected"
        for success, share in power.items()
        if share < POWER
    ]


def main() -> None:
    """Print the results of each seed, and the missed goals. Exit with 1 if a goal is missed."""
    parser = harness.parser(__doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=5, help="default: 5")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="settings of quickstart")
    options = parser.parse_args()
    settings = read("quickstart", options.overrides).settings
    fresh = fresh_problems(settings)
    print(f"{settings.data.test} test problems, {fresh} fresh ones, {NIGHTS} nights")
    gates = []
    for seed in range(options.seeds):
        gates.append(Found.by(Gate(settings, seed, fresh)))
        print(f"seed {seed}: {gates[-1].said}", flush=True)
    wrong = faults(gates)
    print(f"Missed goals: {'; '.join(wrong)}" if wrong else "All goals are met.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
