"""Which nights an experiment has, which of them are not done, and what the next one starts with."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from agentfly_core.artifacts.store import Artifact
from agentfly_core.config.experiment import Night, Science
from agentfly_core.formats.checksummed_json import Damaged
from agentfly_core.formats.json_value import JSON
from agentfly_core.records.dataset import size_of_split
from agentfly_core.records.schedule import night_after
from agentfly_core.reports.night_ledger import DECIDED, NightEntry, NightLedger
from agentfly_core.runs.context import ExperimentContext
from agentfly_core.runs.run import problems_played, record_of, summary_of

PREFIX = "nightly-"
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a night begins with, as the ledger has it: `Beginning(Night(number=12, epoch=2,
    problem=512), "f491...84", 4096, 0)`.

    `dataset` is the digest of the dataset, `problems` the size of its training split, `seed` that
    of the order.
    """

    night: Night
    dataset: str
    problems: int
    seed: int

    @classmethod
    def of(cls, entry: NightEntry) -> Beginning:
        """What an entry `began` says."""
        said: Mapping[str, Any] = entry.details
        night = Night.model_validate(said["night"])
        return cls(night, said["dataset"], said["problems"], said["seed"])

    def __str__(self) -> str:
        night = self.night
        return (
            f"Night {night.number} begins at problem {night.problem} of {self.problems} of epoch "
            f"{night.epoch}."
        )

    def to_json(self) -> dict[str, JSON]:
        """As the entry `began` has it."""
        return {
            "night": self.night.identity(),
            "dataset": self.dataset,
            "problems": self.problems,
            "seed": self.seed,
        }


def name_of_night(context: ExperimentContext, date: datetime.date) -> str:
    """nightly-<date>, with the experiment's name behind it when another experiment has that night's
    name already.
    """
    record = record_of(context.store, f"{PREFIX}{date}")
    ours = record is None or record["experiment"] == context.experiment
    return f"{PREFIX}{date}" if ours else f"{PREFIX}{date}-{context.experiment}"


def date_of(night: str) -> datetime.date | None:
    """The date in a night's name; None for a run that is no night."""
    with suppress(ValueError):
        return datetime.date.fromisoformat(night.removeprefix(PREFIX)[:10])
    return None


def undone(context: ExperimentContext, ledger: NightLedger, tonight: str) -> list[str]:
    """The experiment's other nights, oldest first, that have not done all their steps or are not
    judged; those that were given up are done.
    """
    begun = {entry.night for entry in ledger.entries() if entry.event == "began"}
    return [
        night
        for night in sorted({*_nights(context), *begun})
        if night != tonight
        and ledger.last(night, "given_up") is None
        and not (_finished(context, night) and _judged(ledger, night))
    ]


def beginning(context: ExperimentContext, ledger: NightLedger, data: Artifact) -> Beginning:
    """What a new night begins with: it goes on behind the last one in the order of problems.

    With other data or another seed it begins a new epoch of these. The problems of steps that were
    played and never scored come again.
    """
    size, seed = size_of_split(context.store.open(data), "train"), context.science.seed
    begun = [entry for entry in ledger.entries() if entry.event == "began" and entry.details]
    if not begun:
        return Beginning(Night(number=1), data.digest, size, seed)
    last = max(begun, key=lambda entry: Beginning.of(entry).night.number)
    before = Beginning.of(last)
    if (before.dataset, before.seed) == (data.digest, seed):
        played = _played(context, last.night)
        return Beginning(night_after(before.night, played, size), data.digest, size, seed)
    night = Night(number=before.night.number + 1, epoch=before.night.epoch + 1)
    return Beginning(night, data.digest, size, seed)


def first_changes(context: ExperimentContext, ledger: NightLedger, night: Night) -> list[str]:
    """The settings of a new night that differ from the experiment's: its place in the order of
    problems, and the policy that it starts from.

    That is the champion, or with `promotion.start: last` the last policy of the last finished
    night; before there is one, the start of the experiment itself.
    """
    changes = [f"night={night.model_dump_json()}"]
    if context.science.promotion.start == "last":
        finished = [name for name in _nights(context) if _finished(context, name)]
        start = f"run:{finished[-1]}" if finished else ""
    else:
        champion = ledger.champion()
        start = champion.reference if champion else ""
    return [*changes, f"model={start}", "warm_start=null"] if start else changes


def recorded_changes(context: ExperimentContext, night: str) -> list[str] | None:
    """What a night that was started already was started with, whatever the experiment's file says
    today; None for one that was not.
    """
    record = record_of(context.store, night)
    if record is None:
        return None
    then, today = Science.restored(record["science"]), context.science.model_dump(mode="json")
    return [f"{key}={json.dumps(value)}" for key, value in then.items() if value != today.get(key)]


def _nights(context: ExperimentContext) -> list[str]:
    """The experiment's nights, and those too damaged to say whose they are."""
    nights = []
    for name in context.store.names("runs"):
        if not name.startswith(PREFIX):
            continue
        try:
            record = record_of(context.store, name)
            ours = record is not None and record["experiment"] == context.experiment
        except Damaged:  # reported when it is to be finished
            ours = True
        if ours:
            nights.append(name)
    return nights


def _played(context: ExperimentContext, night: str) -> int:
    try:
        return problems_played(context.store, night)
    except Damaged as damage:
        logger.warning("%s The problems of %s count as not played and come again.", damage, night)
        return 0


def _finished(context: ExperimentContext, night: str) -> bool:
    with suppress(Damaged):
        summary, record = summary_of(context.store, night), record_of(context.store, night)
        return bool(summary and record and summary["steps"] == record["science"]["steps"])
    return False


def _judged(ledger: NightLedger, night: str) -> bool:
    """Whether it is decided, or up to a person; nights of releases without a ledger are."""
    begun = ledger.last(night, "began")
    return begun is None or ledger.last(night, *DECIDED) is not None
