"""The gate: whether a night's policy, the challenger, becomes the champion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from agentfly_core.config.promotion import Promotion
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
from agentfly_core.reports.nights.paired_comparison import Comparison, compared
from agentfly_core.system.formats.json_value import JSON

DATASET, CONFIRMATION = "dataset/", "confirmation"
BothHeldOut = tuple[HeldOut, HeldOut]
"""A champion's and a challenger's outcomes."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was compared: first the goal, then the guards, and last the confirmation where there was
    one.

    `Verdict((Comparison("goal", ...), Comparison("tokens", ...)))`; `worse` says that the
    challenger is worse at the goal, at 95 %.
    """

    comparisons: tuple[Comparison, ...]
    worse: bool = False

    @property
    def promoted(self) -> bool:
        """Whether every comparison held."""
        return all(one.held for one in self.comparisons)

    @property
    def why(self) -> str:
        """The reason in a sentence: "Promoted: success is 0.913 instead of 0.871 ..."."""
        if failed := [one for one in self.comparisons if not one.held]:
            return f"Not promoted: {'; '.join(map(_failure, failed))}."
        goal, *others = self.comparisons
        guards = [one for one in others if one.name != CONFIRMATION]
        parts = [
            f"success is {goal.challenger:.3f} instead of {goal.champion:.3f} on the same "
            f"{goal.problems:,} problems ({_gain(goal)})"
        ]
        if guards:
            parts.append(f"each of the {len(guards)} guards is within its margin")
        parts += [
            f"{one.problems:,} other problems confirm it ({_gain(one)})"
            for one in others
            if one.name == CONFIRMATION
        ]
        return f"Promoted: {', '.join(parts)}."

    def confirmed(self, confirmation: Comparison) -> Verdict:
        """The verdict that counts the comparison on other problems, too."""
        return replace(self, comparisons=(*self.comparisons, confirmation))

    def to_json(self) -> dict[str, JSON]:
        """As it is stored, with `promoted` and `why` for readers."""
        return {
            "promoted": self.promoted,
            "worse": self.worse,
            "why": self.why,
            "comparisons": [one.to_json() for one in self.comparisons],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Verdict:
        """What `to_json` wrote."""
        return cls(tuple(map(Comparison.from_json, stored["comparisons"])), stored["worse"])


def judge(
    champion: HeldOut,
    challenger: HeldOut,
    settings: Promotion,
    datasets: Mapping[str, BothHeldOut] = {},
) -> Verdict:
    """Whether the challenger is better at the goal, and worse by its margin or more in no guard.

    `datasets` has champion and challenger on each of `settings.datasets`. What counts is the
    difference by problem, each problem's outcome the mean over its episodes; its lower bound at
    95 % must be above 0 for the goal and above -margin for each guard.

    Each bound is at 95 %, however many there are: an intersection-union test (Berger 1982,
    Technometrics 24, 295-300). The policy is promoted only if all of them hold; where it deserves
    not to be, one of them is false in truth, and that one alone holds in 5 % of the cases at most.
    More guards make an error rarer, never more frequent, so there is no division of the 5 %.

    Each reward guards, on the problems whose task has it, and each part of one that both have on
    all of these; so does the success in each task of a mixture.

    An unscored episode of the challenger counts as failed: otherwise a policy whose failures often
    stay unscored would pass without any gain. A problem on which the champion has no scored episode
    is left out of both, and counted. `worse` compares scored episodes only. Raises ValueError where
    the problems or datasets differ, fewer than two are left, or a margin names a reward that is not
    there.
    """
    both = _Both(champion, with_failures(challenger, champion))
    goal = both.compared(GOAL, 0.0)
    worse = _Both(challenger, champion).compared(GOAL, 0.0).held
    guards = [both.compared(*guard) for guard in both.guards(settings)]
    guards += [] if settings.unscored is None else [both.unscored(settings.unscored)]
    if datasets.keys() != settings.datasets.keys():
        raise ValueError(
            f"Got outcomes on the datasets {sorted(datasets)}, expected "
            f"{sorted(settings.datasets)}: evaluate both policies on each of promotion.datasets."
        )
    elsewhere = [
        compare_goal(*pair, f"{DATASET}{name}", margin=settings.datasets[name].margin)
        for name, pair in datasets.items()
    ]
    return Verdict((goal, *guards, *elsewhere), worse)


def compare_goal(
    champion: HeldOut, challenger: HeldOut, name: str, level: float = 0.05, margin: float = 0.0
) -> Comparison:
    """Compare the goal as `judge` does, and raise ValueError as it does."""
    both = _Both(champion, with_failures(challenger, champion))
    return both.compared(GOAL, margin, name, level)


def with_failures(held: HeldOut, other: HeldOut) -> HeldOut:
    """Count the unscored episodes of `held` as failed.

    A failed episode does not reach the goal. Each of its rewards is the lowest that either policy
    has on a problem. Its tokens and calls stay left out.
    """
    lowest: dict[str, float] = {}
    for outcome in (*held.by_problem.values(), *other.by_problem.values()):
        for name in filter(_fails, outcome):
            least = outcome[name] if name.startswith(REWARD) else 0.0
            lowest[name] = min(lowest.get(name, least), least)

    def counted(problem: str, outcome: HeldOutMeans) -> HeldOutMeans:
        share = unscored_share(outcome)
        names = filter(_fails, outcome or other.by_problem.get(problem, {}))
        failed = {
            name: (1 - share) * outcome.get(name, 0.0) + share * lowest[name] for name in names
        }
        return {**outcome, **failed, UNSCORED: share}

    return replace(
        held,
        by_problem={name: counted(name, outcome) for name, outcome in held.by_problem.items()},
    )


def _fails(name: str) -> bool:
    """Whether a failed episode lowers the outcome of this name."""
    return name == GOAL or name.startswith((REWARD, TASK))


@dataclass(frozen=True)
class _Both:
    """A champion's and a challenger's outcomes on the same problems."""

    champion: HeldOut
    challenger: HeldOut

    @cached_property
    def common(self) -> list[str]:
        """The problems on which both have an outcome."""
        champion, challenger = self.champion, self.challenger
        if champion.dataset != challenger.dataset:
            raise ValueError(
                f"Got outcomes on the datasets {champion.dataset:.12} (champion) and "
                f"{challenger.dataset:.12} (challenger), expected one dataset: evaluate both "
                "policies on the same held-out problems."
            )
        if odd := sorted(champion.by_problem.keys() ^ challenger.by_problem.keys()):
            raise ValueError(
                f"Got {len(champion.by_problem)} problems of the champion and "
                f"{len(challenger.by_problem)} of the challenger ({len(odd)} in one only, such as "
                f"{odd[0]!r}), expected the same: evaluate both on the same split with the same "
                "settings."
            )
        common = [
            problem
            for problem, outcome in champion.by_problem.items()
            if GOAL in outcome and GOAL in challenger.by_problem[problem]
        ]
        if len(common) < 2:
            raise ValueError(
                f"Got {len(common)} of {len(champion.by_problem)} problems on which both policies "
                "have a scored episode, expected two or more: see why episodes are unscored, or "
                "raise data.test."
            )
        return common

    def guards(self, settings: Promotion) -> Iterator[tuple[str, float]]:
        """The outcomes that guard, with their margins."""
        counted = Counter(name for problem in self.common for name in self._outcomes(problem))
        parts = [name.removeprefix(REWARD) for name in counted if name.startswith(REWARD)]
        # The parts of a reward, `exact/tag`, may be missing in an episode, and on a problem.
        whole = [
            name
            for name in sorted(parts)
            if counted[f"{REWARD}{name}"] == counted[f"{REWARD}{name.partition('/')[0]}"]
        ]
        if lost := [name for name in settings.reward_margins if name not in whole]:
            raise ValueError(
                f"promotion.reward_margins: not every held-out problem has a reward {lost[0]!r}, "
                f"expected some of {', '.join(sorted(parts))}."
            )
        rewards = {**dict.fromkeys(whole, settings.rewards), **settings.reward_margins}
        margins = {f"{REWARD}{name}": margin for name, margin in rewards.items()}
        tasks = sorted(name for name in counted if name.startswith(TASK))
        margins |= dict.fromkeys(tasks, settings.tasks)
        margins |= {TOKENS: settings.tokens, UNREADABLE_CALLS: settings.unreadable_calls}
        yield from ((name, margin) for name, margin in margins.items() if margin is not None)

    def _outcomes(self, problem: str) -> set[str]:
        """What both have of a problem."""
        return {*self.champion.by_problem[problem]} & {*self.challenger.by_problem[problem]}

    def compared(
        self, outcome: str, margin: float, name: str = "", level: float = 0.05
    ) -> Comparison:
        """The comparison of one outcome on the problems on which both have it."""
        having = [problem for problem in self.common if outcome in self._outcomes(problem)]
        if len(having) < 2:
            raise ValueError(
                f"Got {len(having)} held-out problems with {outcome}, expected two or more: raise "
                "data.test of the task, or take the guard away."
            )
        champion, challenger = (
            [held.by_problem[problem][outcome] for problem in having]
            for held in (self.champion, self.challenger)
        )
        sign = -1.0 if outcome in (TOKENS, UNREADABLE_CALLS) else 1.0
        # Tokens have heavy tails and no scale of their own. What is paid for is their mean, so it
        # is the means that are compared, as a share of the champion's, and not their logarithms.
        unit = fmean(champion) or 1.0 if outcome == TOKENS else 1.0
        left_out = len(self.champion.by_problem) - len(self.common)
        return compared(name or outcome, champion, challenger, margin, level, left_out, sign, unit)

    def unscored(self, margin: float) -> Comparison:
        """The comparison of the shares of unscored episodes, on all problems."""
        champion, challenger = (
            [unscored_share(held.by_problem[problem]) for problem in self.champion.by_problem]
            for held in (self.champion, self.challenger)
        )
        return compared(UNSCORED, champion, challenger, margin, sign=-1.0)


def _gain(one: Comparison) -> str:
    return f"{one.difference:+.3f}, at least {one.bound:+.3f}"


def _failure(one: Comparison) -> str:
    """What a comparison that did not hold says."""
    numbers = f"{one.challenger:.4g} instead of {one.champion:.4g}"
    if one.name == GOAL:
        what = "a loss" if one.difference < 0 else "no sure gain"
        return f"success is {numbers} on {one.problems:,} problems ({_gain(one)}), which is {what}"
    if one.name == CONFIRMATION:
        return f"{one.problems:,} other problems do not confirm the gain: {numbers} ({_gain(one)})"
    return (
        f"the guard {one.name} is {numbers}: it may be worse by {-one.bound:.3g}, allowed is "
        f"{one.margin:.3g}"
    )
