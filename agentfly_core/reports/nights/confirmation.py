"""The second look: a challenger that won is compared on problems that the first one has not used.

The test problems serve hundreds of nights. A night learns one bit of them, whether its policy was
promoted; still, in many nights a policy may win that is good at these problems and at no others.
Other problems, looked at only after a win, bound that: whatever became of the test problems, a
policy that is no better passes fresh ones in 5 % of the cases at most. A dataset that generates few
different problems has them only for some confirmations; the ones used longest ago come again then.

Where both looks are honest an equal policy passes them in 0.05 x 0.05 = 0.25 % of the nights, with
a split in 0.05 x 0.20 = 1 %. The power that is left to a gain of 0.05 in success is measured by
`python -m benchmarks.nights`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import ceil
from typing import Literal

from agentfly_core.config.experiment import Settings
from agentfly_core.config.import_path import load
from agentfly_core.config.parts import Data
from agentfly_core.config.promotion import Confirmation
from agentfly_core.config.tasks import data_of
from agentfly_core.records.generated_dataset import is_generated
from agentfly_core.reports.nights.held_out import HeldOut
from agentfly_core.reports.nights.paired_comparison import Comparison
from agentfly_core.reports.nights.promotion import CONFIRMATION, compare_goal
from agentfly_core.system.formats import hashing

logger = logging.getLogger(__name__)
Way = Literal["fresh", "split", "none"]
LEVELS = {"fresh": 0.05, "split": 0.2}
"""Of the one-sided test. Twice as many fresh problems as test problems can afford 5 %: a policy
that wins on the test problems by what it truly gained passes nearly always. A split has few
problems, so at 5 % it would refuse most true gains; its 20 % come on top of the 5 % of the first
look, on problems that this look has not seen.
"""


def way(confirmation: Confirmation, datasets: Iterable[str]) -> Way:
    """How promotions are confirmed: as the experiment says, or by what its `datasets` are, the
    import paths of all tasks.
    """
    if confirmation.use == "auto":
        return "fresh" if all(is_generated(load(path)) for path in datasets) else "split"
    return confirmation.use


def looks(how: Way, share: float, held: HeldOut) -> tuple[HeldOut, HeldOut]:
    """The test problems that the first look, `judge`, compares, and those that are set aside to
    confirm it.

    Where the way is a split the second look has this share of them, chosen by their ids and so for
    ever; else it has none of them.
    """
    if how != "split":
        return held, replace(held, by_problem={})

    def set_aside(problem: str) -> bool:
        return hashing.seed("confirmation", problem) < share * 2**63

    return held.where(lambda problem: not set_aside(problem)), held.where(set_aside)


def confirm(how: Way, champion: HeldOut, challenger: HeldOut) -> Comparison:
    """The comparison that confirms, on the second look's problems or on `unseen` fresh ones."""
    return compare_goal(champion, challenger, CONFIRMATION, LEVELS[how])


def fresh_settings(settings: Settings, earlier: int) -> Settings:
    """The experiment with other problems: of a seed that no confirmation had before.

    `earlier` is the number of confirmations before this one, lost ones too: a problem that decided
    once is used, also where it decided against. Its test split is what both policies play.
    """
    times = settings.promotion.confirmation.times

    def fresh(data: Data) -> Data:
        seed = settings.of_data.seed if data.seed is None else data.seed
        other = hashing.seed(seed, "confirmation", earlier) % 2**31
        return data.model_copy(update={"seed": other, "test": ceil(data.test * times)})

    if not settings.tasks:
        return settings.model_copy(update={"data": fresh(settings.data)})
    tasks = {
        name: task.model_copy(update={"data": fresh(task.data)})
        for name, task in settings.tasks.items()
    }
    data = Data.model_validate(data_of(tasks, settings.data.seed))
    return settings.model_copy(update={"tasks": tasks, "data": data})


def unseen(
    fresh: Collection[str], own: Collection[str], earlier: Sequence[Collection[str]]
) -> set[str]:
    """The fresh problems that count, by their ids: none of the experiment's `own` training,
    validation and test problems, and none of an earlier confirmation.

    A dataset that generates few different problems runs out of new ones. So the `earlier` ones are
    taken out from the latest back, as long as three quarters of those that are not its own are
    left. Raises ValueError where fewer than two are.
    """
    left = set(fresh).difference(own)
    enough = max(2, len(left) * 3 / 4)
    if len(left) < 2:
        raise ValueError(
            f"Got {len(fresh)} fresh problems, and {len(left)} of them with an id that none of the "
            "experiment's own problems has, expected two or more: the ids of a @generated dataset "
            "say what a problem asks for. Take the mark away, or set promotion.confirmation=split."
        )
    for number, used in reversed([*enumerate(earlier, 1)]):
        if len(left.difference(used)) < enough:
            logger.warning(
                "The dataset has few fresh problems: those of the confirmations 1 to %s may serve "
                "again.",
                number,
            )
            break
        left.difference_update(used)
    return left
