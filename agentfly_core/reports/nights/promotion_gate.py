"""Decide whether a night's policy (challenger) replaces the promoted policy (champion).

A challenger that wins on the test problems is compared a second time (the confirmation), on
problems that the first comparison did not use. Hundreds of nights use the same test problems, so a
policy may win only because it is good at these problems. The confirmation limits this risk: on
different problems, an equal or worse policy passes in at most 5 % of the cases.

If both comparisons are unbiased, a policy that equals the champion passes in 0.05 x 0.05 = 0.25 %
of the nights. Instead of new problems, a part of the test problems may be set aside for the
confirmation (a split). The significance level of the confirmation is then 0.20 instead of 0.05,
so an equal policy passes in 0.05 x 0.20 = 1 % of the nights.
`python -m benchmarks.nights` measures how often a gain of 0.05 in success is still detected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal

from agentfly_core.config.import_path import load
from agentfly_core.config.promotion import Confirmation, Promotion
from agentfly_core.records.generated_dataset import is_generated
from agentfly_core.records.intervals import lower_bound
from agentfly_core.reports.nights.held_out import (
    GOAL,
    REWARD,
    TASK,
    TOKENS,
    UNREADABLE_CALLS,
    UNSCORED,
    HeldOut,
    HeldOutMeans,
    unscored_share,
)
from agentfly_core.system.formats import hashing

CONFIRMATION = "confirmation"
FAILING = re.compile(f"{GOAL}$|{REWARD}|{TASK}")
"""Matches the names of the outcomes that a failed episode lowers: the goal, rewards, and the
success in each task.
"""
BothHeldOut = tuple[HeldOut, HeldOut]
"""The outcomes of the champion (promoted policy) and of the challenger (new policy)."""
OutcomePairs = Sequence[tuple[HeldOutMeans, HeldOutMeans]]
"""For each problem, the outcomes of the champion (promoted policy) and the challenger."""
Way = Literal["fresh", "split", "none"]
LEVELS = {"fresh": 0.05, "split": 0.2}
"""Significance levels of the one-sided test in the confirmation (the second comparison). The
confirmation "fresh" uses new problems. The confirmation "split" uses the few test problems that
were set aside. On so few problems, most real gains would fail a test with a level of 0.05.
"""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a new policy (challenger) with the promoted policy (champion).

        Comparison(
            "goal", champion=0.871, challenger=0.913, difference=0.042, bound=0.021, margin=0.0,
            level=0.05, problems=998,
        )

    `name` is the compared outcome. For the success in the confirmation (second comparison), `name`
    is "confirmation". For the success on a further dataset, `name` is "dataset/NAME". `difference`
    is positive if the challenger is better. If `name` is "tokens", `difference` is the number of
    saved tokens as a share of the champion's number of tokens. The true difference is below `bound`
    with a probability of at most `level`. The comparison passes if `bound` is above -`margin`.
    """

    name: str
    champion: float
    challenger: float
    difference: float
    bound: float
    margin: float
    level: float
    problems: int

    @property
    def held(self) -> bool:
        """Whether the comparison passes: the difference's lower bound is above -margin."""
        return self.bound > -self.margin

    def __str__(self) -> str:
        return (
            f"{self.name} {self.challenger:.4g} (champion {self.champion:.4g}) on "
            f"{self.problems:,} problems, difference {self.difference:+.3f}, lower bound "
            f"{self.bound:+.3f} (must be above {0.0 - self.margin:g})"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The comparisons of a challenger with the champion: `Verdict((Comparison("goal", ...),
    Comparison("tokens", ...)))`.

    The first comparison is the goal. The next comparisons are the guards (outcomes that must not
    get worse). The last comparison is the confirmation, if the policy was compared a second time.
    `worse` is True if the challenger is worse at the goal with 95 % confidence.
    """

    comparisons: tuple[Comparison, ...]
    worse: bool = False

    @property
    def promoted(self) -> bool:
        """Whether the challenger passed every comparison."""
        return all(one.held for one in self.comparisons)

    @property
    def why(self) -> str:
        """The reason for the decision: "Better: goal 0.913 (champion 0.871) on 998 problems,
        difference +0.042 ...".
        """
        if failed := [one for one in self.comparisons if not one.held]:
            return f"Not promoted: {'; '.join(map(str, failed))}."
        gains = [one for one in self.comparisons if one.name in (GOAL, CONFIRMATION)]
        return f"Better: {'; '.join(map(str, gains))}; no guard is violated."

    def confirmed(self, confirmation: Comparison) -> Verdict:
        """Return a copy of this verdict that also contains the confirmation: the second comparison
        of a policy that won the first comparison.
        """
        return replace(self, comparisons=(*self.comparisons, confirmation))


def judge(
    champion: HeldOut,
    challenger: HeldOut,
    settings: Promotion,
    datasets: Mapping[str, BothHeldOut] = {},
) -> Verdict:
    """Judge whether the challenger is better at the goal, and not much worse in any guard.

    A guard is an outcome that must not get worse by more than its margin. The 95 % lower bound of
    the mean difference must be above 0 for the goal, and above -margin for each guard. This is an
    intersection-union test (Berger 1982, Technometrics 24, 295-300). All comparisons must pass, so
    further guards do not make a wrong promotion more likely. The level of 5 % is therefore not
    divided among the guards.

    The guards are:

    - each reward, and the success in each task of a mixture
    - each partial score, such as `exact/tag`, that was measured for both policies on every problem
      with the reward `exact`
    - the number of tokens, unreadable calls, and unscored episodes
    - the success on each dataset in `datasets`

    An unscored episode of the challenger counts as failed. Otherwise, the challenger could gain
    from failures that are not scored. If all episodes of the champion on a problem are unscored,
    the problem is skipped. Only scored episodes decide the field `worse` of the result (True if the
    challenger is worse at the goal with 95 % confidence).

    Raises ValueError if the problems or datasets of the policies differ, if fewer than two problems
    remain, or if a margin names an unknown reward.
    """
    both = scored_pairs(champion, with_failures(challenger, champion))
    reversed_pairs = [(new, old) for old, new in scored_pairs(champion, challenger)]
    guards = [compared(both, *guard) for guard in _guards(both, settings)]
    if settings.unscored is not None:
        old, new = (
            [{UNSCORED: unscored_share(outcome)} for outcome in held.by_problem.values()]
            for held in (champion, challenger)
        )
        guards.append(compared([*zip(old, new, strict=True)], UNSCORED, settings.unscored))
    elsewhere = [
        compare_goal(*datasets[name], f"dataset/{name}", margin=dataset.margin)
        for name, dataset in settings.datasets.items()
    ]
    # here, unscored episodes do not count as failed, because an outage of a service is not evidence
    # that a policy is worse
    worse = compared(reversed_pairs, GOAL, 0.0).held
    return Verdict((compared(both, GOAL, 0.0), *guards, *elsewhere), worse)


def compare_goal(
    champion: HeldOut, challenger: HeldOut, name: str, level: float = 0.05, margin: float = 0.0
) -> Comparison:
    """Compare only the success (the outcome "goal") of champion and challenger, as `judge` does.

    `name` is the name of the returned comparison. Problems without a scored episode of the champion
    are skipped. Raises ValueError if the problems or datasets of the policies differ, or if fewer
    than two problems remain.
    """
    both = scored_pairs(champion, with_failures(challenger, champion))
    return replace(compared(both, GOAL, margin, level), name=name)


def with_failures(held: HeldOut, other: HeldOut) -> HeldOut:
    """Return the outcomes `held` of a policy, with unscored episodes counted as failed.

    A failed episode does not reach the goal. For each reward, a failed episode gets the lowest
    value of this reward in `held` and `other`. The tokens and calls of a failed episode are not
    counted.
    """
    lowest: dict[str, float] = {}
    for outcome in (*held.by_problem.values(), *other.by_problem.values()):
        for name in filter(FAILING.match, outcome):
            least = outcome[name] if name.startswith(REWARD) else 0.0
            lowest[name] = min(lowest.get(name, least), least)
    counted = {}
    for problem, outcome in held.by_problem.items():
        share = unscored_share(outcome)
        names = filter(FAILING.match, outcome or other.by_problem.get(problem, {}))
        failed = {n: (1 - share) * outcome.get(n, 0.0) + share * lowest[n] for n in names}
        counted[problem] = {**outcome, **failed, UNSCORED: share}
    return replace(held, by_problem=counted)


def scored_pairs(champion: HeldOut, challenger: HeldOut) -> OutcomePairs:
    """Pair the outcomes of both policies on each problem.

    A problem is skipped if one of the policies lacks a scored episode. Raises ValueError if the
    problems or datasets of the policies differ, or if fewer than two pairs remain.
    """
    old, new = champion.by_problem, challenger.by_problem
    if champion.dataset != challenger.dataset or old.keys() != new.keys():
        raise ValueError(
            f"The champion was evaluated on {len(old)} problems of the dataset "
            f"{champion.dataset:.12}, but the challenger on {len(new)} problems of "
            f"{challenger.dataset:.12}. Evaluate both on the same split with the same settings."
        )
    both = [(old[name], new[name]) for name in old if GOAL in old[name] and GOAL in new[name]]
    if len(both) < 2:
        raise ValueError(
            f"Both policies have a scored episode on {len(both)} of {len(old)} problems, but the "
            "comparison needs at least two. Raise data.test, or find out why episodes are "
            "unscored."
        )
    return both


def _guards(both: OutcomePairs, settings: Promotion) -> Iterator[tuple[str, float]]:
    """Yield the name and the margin of each guard (outcome that must not get worse).

    Raises ValueError if a margin in the settings names an unknown reward.
    """
    counted = Counter(name for old, new in both for name in old.keys() & new.keys())
    parts = [name.removeprefix(REWARD) for name in counted if name.startswith(REWARD)]
    # a part of a reward, `exact/tag`, may be missing in an episode and on a problem
    whole = [
        name
        for name in sorted(parts)
        if counted[f"{REWARD}{name}"] == counted[f"{REWARD}{name.partition('/')[0]}"]
    ]
    if unknown := [name for name in settings.reward_margins if name not in whole]:
        raise ValueError(
            f"promotion.reward_margins: got {unknown[0]!r}, expected a reward that is computed "
            f"for every held-out problem (such rewards: {', '.join(whole) or 'none'})."
        )
    rewards = {**dict.fromkeys(whole, settings.rewards), **settings.reward_margins}
    margins = {f"{REWARD}{name}": margin for name, margin in rewards.items()}
    margins |= dict.fromkeys(sorted(n for n in counted if n.startswith(TASK)), settings.tasks)
    margins |= {TOKENS: settings.tokens, UNREADABLE_CALLS: settings.unreadable_calls}
    yield from ((name, margin) for name, margin in margins.items() if margin is not None)


def compared(both: OutcomePairs, outcome: str, margin: float, level: float = 0.05) -> Comparison:
    """Compare the champion and the challenger in one outcome, such as success or a reward.

    Only problems on which the outcome was measured for both policies are compared. Raises
    ValueError if there are fewer than two such problems.
    """
    values = [
        (old[outcome], new[outcome]) for old, new in both if outcome in old and outcome in new
    ]
    if len(values) < 2:
        raise ValueError(
            f"{outcome} was measured on {len(values)} of {len(both)} held-out problems, but a "
            "comparison needs at least two. Raise data.test of the task, or set the margin of "
            f"{outcome} in `promotion` to null."
        )
    champion, challenger = (fmean(each) for each in zip(*values, strict=True))
    # the mean number of tokens is the cost, so no logarithms are used
    unit = champion or 1.0 if outcome == TOKENS else 1.0
    # for these outcomes less is better
    sign = -1.0 if outcome in (TOKENS, UNREADABLE_CALLS, UNSCORED) else 1.0
    differences = [sign * (new - old) / unit for old, new in values]
    # the largest possible difference: `lower_bound` adds it to the differences, because equal
    # differences would have a variance of 0
    reach = (max(map(max, values)) - min(map(min, values))) / unit
    return Comparison(
        outcome,
        champion,
        challenger,
        difference=fmean(differences),
        bound=lower_bound(differences, reach, level),
        margin=margin,
        level=level,
        problems=len(values),
    )


def way(confirmation: Confirmation, datasets: Iterable[str]) -> Way:
    """Return how a better result of the challenger is confirmed by a second comparison.

    - "fresh": on new problems
    - "split": on test problems that are set aside
    - "none": without a second comparison

    `datasets` has the import paths of the dataset functions. The setting `auto` means "fresh" if
    all of these functions can generate new problems. Otherwise it means "split".
    """
    if confirmation.use == "auto":
        return "fresh" if all(is_generated(load(path)) for path in datasets) else "split"
    return confirmation.use


def confirmed_verdict(
    how: Way,
    test: BothHeldOut,
    guards: Mapping[str, BothHeldOut],
    fresh: Callable[[], BothHeldOut],
    settings: Promotion,
) -> Verdict:
    """Judge the challenger on the test problems, and confirm a better result.

    - `how`: "fresh" to confirm on new problems, "split" to confirm on test problems that were set
      aside, or "none" for no confirmation
    - `test`: the outcomes of both policies on the test problems
    - `guards`: the outcomes of both policies on each further dataset
    - `fresh`: returns the outcomes of both policies on new problems
    """
    share = settings.confirmation.share
    (old, old_aside), (new, new_aside) = (looks(how, share, held) for held in test)
    verdict = judge(old, new, settings, guards)
    if not verdict.promoted or how == "none":
        return verdict
    others = fresh() if how == "fresh" else (old_aside, new_aside)
    return verdict.confirmed(compare_goal(*others, CONFIRMATION, LEVELS[how]))


def looks(how: Way, share: float, held: HeldOut) -> tuple[HeldOut, HeldOut]:
    """Split the outcomes `held` into a part for the first comparison of the policies, and a part
    for the confirmation (the second comparison).

    If `how` is "split", the confirmation gets the share `share` (from 0 to 1) of the problems. The
    ids of the problems determine this part, so every night has the same split. For other values of
    `how`, the part for the confirmation is empty.
    """
    aside = {
        problem
        for problem in held.by_problem
        # seeds are uniform in [0, 2**63)
        if how == "split" and hashing.seed("confirmation", problem) < share * 2**63
    }
    return held.where(lambda problem: problem not in aside), held.where(aside.__contains__)
