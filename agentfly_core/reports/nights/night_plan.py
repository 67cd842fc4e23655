"""The nights of an experiment: the unfinished ones, and the start of the next one."""

from __future__ import annotations

import datetime
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from agentfly_core.config.experiment import Night, OrderPosition
from agentfly_core.config.tasks import SINGLE
from agentfly_core.experiment import run_code
from agentfly_core.experiment.run_layout import finished_summary, record_of
from agentfly_core.experiment.user_code import Code
from agentfly_core.records.dataset import sizes_by_task
from agentfly_core.records.problem_schedule import night_after
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import DECIDED, NightEntry, NightHistory
from agentfly_core.runs.run import problems_played
from agentfly_core.store.store import Pointer, Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON

PREFIX = "nightly-"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The start of a night, as its ledger entry: `Beginning(Night(number=12), "f491...84",
    {"single": 4096}, 0)`.

    `dataset` is the digest of the dataset, `problems` the size of its training split by task,
    `seed` that of the order.
    """

    night: Night
    dataset: str
    problems: Mapping[str, int]
    seed: int

    @classmethod
    def of(cls, entry: NightEntry) -> Beginning:
        """What an entry `began` says."""
        details: Mapping[str, Any] = entry.details
        night = Night.model_validate(details["night"])
        return cls(night, details["dataset"], details["problems"], details["seed"])

    def __str__(self) -> str:
        places = []
        for name, size in self.problems.items():
            place, of_task = self.night.of(name), "" if name == SINGLE else f" of {name}"
            places.append(f"problem {place.problem} of {size} of epoch {place.epoch}{of_task}")
        return f"Night {self.night.number} begins at {', '.join(places)}."

    def to_json(self) -> dict[str, JSON]:
        """As the entry `began` has it."""
        return {
            "night": self.night.model_dump(mode="json"),
            "dataset": self.dataset,
            "problems": dict(self.problems),
            "seed": self.seed,
        }


def name_of_night(store: Store, experiment: str, date: datetime.date) -> str:
    """nightly-<date>, with the experiment's name behind it when another experiment has that night's
    name already.
    """
    record = record_of(store, f"{PREFIX}{date}")
    ours = record is None or record["experiment"] == experiment
    return f"{PREFIX}{date}" if ours else f"{PREFIX}{date}-{experiment}"


def date_of(night: str) -> datetime.date | None:
    """The date in a night's name; None for a run that is no night."""
    with suppress(ValueError):
        return datetime.date.fromisoformat(night.removeprefix(PREFIX)[:10])
    return None


def undone(store: Store, history: NightHistory, tonight: str) -> list[str]:
    """The experiment's other nights, oldest first, that have not done all their steps or are not
    judged; a night that was given up counts as done.
    """
    nights = {entry.night for entry in history.entries if entry.event == "began"}
    return [
        night
        for night in sorted(nights - {tonight})
        if history.last(night, "given_up") is None
        and not (finished(store, night) and history.last(night, *DECIDED))
    ]


def beginning(store: Store, history: NightHistory, data: Pointer, seed: int) -> Beginning:
    """The start of a new night: it continues behind the last one in the order of problems, which
    comes from the seed.

    With other data or another seed it begins a new epoch of these. The problems of steps that were
    played and never scored come again.
    """
    sizes = sizes_by_task(store.open(data))
    begun = [entry for entry in history.entries if entry.event == "began" and entry.details]
    if not begun:
        return Beginning(Night(number=1), data.digest, sizes, seed)
    last = max(begun, key=lambda entry: Beginning.of(entry).night.number)
    before = Beginning.of(last)
    if (before.dataset, before.seed) == (data.digest, seed):
        ended = history.last(last.night, "finished", "given_up")
        details: Mapping[str, Any] = ended.details if ended else {}
        scored = details["played"] if "played" in details else played(store, last.night, sizes)
        night = night_after(before.night, scored, sizes)
        return Beginning(night, data.digest, sizes, seed)
    epoch = max(before.night.of(name).epoch for name in before.problems)
    places = dict.fromkeys(sizes, OrderPosition(epoch=epoch + 1))
    night = Night(number=before.night.number + 1, tasks=places)
    return Beginning(night, data.digest, sizes, seed)


def first_changes(
    history: NightHistory, night: Night, start_from: Literal["champion", "last"]
) -> list[str]:
    """The settings of a new night that differ from the experiment's: its place in the order of
    problems, and the policy that it starts from.

    That is the champion, or with `last` the last policy of the night that finished
    last; before there is one, the start of the experiment itself, behind which there is no
    optimizer's state.
    """
    start, changes = "", [f"night={night.model_dump_json()}"]
    if start_from == "last":
        ended = [entry.night for entry in history.entries if entry.event == "finished"]
        start = f"run:{ended[-1]}" if ended else ""
    elif champion := history.champion:
        start = champion.reference
    if start:
        return [*changes, f"model={start}", "warm_start=null"]
    return [*changes, "update.optimizer_state=fresh"]


def recorded_changes(
    store: Store, night: str, experiment: str, today: Mapping[str, JSON]
) -> list[str] | None:
    """The settings of a night that has begun, as far as those of today differ; None before it
    begins. Raises ValueError for a run of another experiment.
    """
    record = record_of(store, night)
    if record is None:
        return None
    if record["experiment"] != experiment:
        raise ValueError(
            f"The run {night!r} is of the experiment {record['experiment']!r}, expected one of "
            f"{experiment!r}: another schedule took the name a moment ago. Run it again."
        )
    then = record["settings"]
    changed = [key for key, value in then.items() if key != "code" and value != today.get(key)]
    return [f"{key}={json.dumps(then[key])}" for key in changed]


def edited(store: Store, night: str, code: Code) -> list[str]:
    """Where the code of an unfinished night differs from `code`, which it could not go on
    with: `own_tools.py`.
    """
    if finished(store, night):
        return []
    with suppress(Damaged):  # reported when it is to be finished
        if record := record_of(store, night):
            return run_code.changed(record, code)
    return []


def finished(store: Store, night: str) -> Summary | None:
    """The summary of a night that has done all its steps."""
    with suppress(Damaged):
        if record := record_of(store, night):
            return finished_summary(store, night, record["settings"]["steps"])
    return None


def played(store: Store, night: str, tasks: Iterable[str]) -> dict[str, int]:
    """How many problems of each task a night has scored, as the ledger has it; none, and a warning,
    where that cannot be read.
    """
    scored = Counter[str]()
    try:
        scored = problems_played(store, night)
    except Damaged as damage:
        logger.warning("%s The problems of %s count as not played and come again.", damage, night)
    return {name: scored[name] for name in tasks}
