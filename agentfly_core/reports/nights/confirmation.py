"""The second comparison: a challenger that won is compared on problems not used by the first.

The test problems serve hundreds of nights, so a policy may win that is good at these problems only.
Other problems, used after a win, bound that: an equal or worse policy passes on them in at most 5 %
of the cases.

Where both comparisons are honest an equal policy passes in 0.05 x 0.05 = 0.25 % of the nights, with
a split in 0.05 x 0.20 = 1 %. `python -m benchmarks.nights` measures the power that is left for a
gain of 0.05 in success.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from agentfly_core.config.import_path import load
from agentfly_core.config.promotion import Confirmation, Promotion
from agentfly_core.records.generated_dataset import is_generated
from agentfly_core.reports.nights.held_out import HeldOut
from agentfly_core.reports.nights.promotion import (
    CONFIRMATION,
    BothHeldOut,
    Verdict,
    compare_goal,
    judge,
)
from agentfly_core.system.formats import hashing

Way = Literal["fresh", "split", "none"]
LEVELS = {"fresh": 0.05, "split": 0.2}
"""Levels of the one-sided test. With the few problems of a split, 5 % would refuse most true gains.
"""


def way(confirmation: Confirmation, datasets: Iterable[str]) -> Way:
    """Return how wins are confirmed; `auto` depends on the import paths of all `datasets`."""
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
    """Judge on the test problems, and confirm a win on the problems set aside or on `fresh()`."""
    share = settings.confirmation.share
    (old, old_aside), (new, new_aside) = (looks(how, share, held) for held in test)
    verdict = judge(old, new, settings, guards)
    if not verdict.promoted or how == "none":
        return verdict
    others = fresh() if how == "fresh" else (old_aside, new_aside)
    return verdict.confirmed(compare_goal(*others, CONFIRMATION, LEVELS[how]))


def looks(how: Way, share: float, held: HeldOut) -> tuple[HeldOut, HeldOut]:
    """Split the test problems into a first part to judge and a second part to confirm.

    A split sets this share of them aside, chosen by their ids and so always the same ones.
    """
    if how != "split":
        return held, replace(held, by_problem={})

    def set_aside(problem: str) -> bool:
        return hashing.seed("confirmation", problem) < share * 2**63

    return held.where(lambda problem: not set_aside(problem)), held.where(set_aside)
