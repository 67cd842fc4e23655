"""The nights of an experiment: the unfinished ones, and the start of the next one."""

from __future__ import annotations

import datetime
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress

from agentfly_core.config.experiment import Night, OrderPosition
from agentfly_core.experiment.run_layout import finished_summary, record_of
from agentfly_core.records.dataset import sizes_by_task
from agentfly_core.records.problem_schedule import night_after
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import (
    DECIDED,
    Beginning,
    NightHistory,
    ScoredProblems,
)
from agentfly_core.runs.run import problems_played
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON

PREFIX = "nightly-"
logger = logging.getLogger(__name__)


def name_of_night(store: Store, experiment: str, date: datetime.date) -> str:
    """Return nightly-<date>, with the experiment's name if another experiment has that run."""
    record = record_of(store, f"{PREFIX}{date}")
    ours = record is None or record["experiment"] == experiment
    return f"{PREFIX}{date}" if ours else f"{PREFIX}{date}-{experiment}"


def date_of(night: str) -> datetime.date | None:
    """Return the date in a night's name; None for any other run."""
    with suppress(ValueError):
        return datetime.date.fromisoformat(night.removeprefix(PREFIX)[:10])
    return None


def undone(history: NightHistory, tonight: str) -> list[str]:
    """Return earlier nights without a decision, oldest first; not those given up."""
    begun = {entry.night for entry in history.entries if entry.event == "began"} - {tonight}
    return [night for night in sorted(begun) if not history.last(night, "given_up", *DECIDED)]


def beginning(
    store: Store, history: NightHistory, data: Pointer, seed: int, start: str
) -> Beginning:
    """Plan a new night: its place in the order of problems, and its first policy.

    It continues where the last night ended; problems that were never scored come again, and other
    data or another seed begin a new epoch. The first policy is the champion, or with `start` "last"
    (promotion.start) the policy of the night that finished last. The first night starts as the
    experiment does, without an optimizer state of a parent.
    """
    sizes = sizes_by_task(store.open(data))
    night = _position(history, data, seed, sizes)
    champion = history.champion
    policy = str(champion.reference) if champion else ""
    if start == "last":
        ended = [entry.night for entry in history.entries if entry.event == "finished"]
        policy = f"run:{ended[-1]}" if ended else ""
    first = [f"model={policy}", "warm_start=null"] if policy else ["update.optimizer_state=fresh"]
    changes = [f"night={night.model_dump_json()}", *first]
    return Beginning(night, data.digest, sizes, seed, changes)


def _position(history: NightHistory, data: Pointer, seed: int, sizes: Mapping[str, int]) -> Night:
    begun = {e.night: e.details for e in history.entries if isinstance(e.details, Beginning)}
    if not begun:
        return Night(number=1)
    name, before = max(begun.items(), key=lambda item: item[1].night.number)
    if (before.dataset, before.seed) != (data.digest, seed):
        epoch = max(before.night.of(task).epoch for task in before.problems)
        places = dict.fromkeys(sizes, OrderPosition(epoch=epoch + 1))
        return Night(number=before.night.number + 1, tasks=places)
    ended = history.last(name, "finished", "given_up")
    assert ended and isinstance(ended.details, ScoredProblems), "earlier nights end first"
    return night_after(before.night, ended.details.by_task, sizes)


def recorded_changes(
    store: Store, night: str, experiment: str, today: Mapping[str, JSON]
) -> list[str] | None:
    """Return the settings in which a night that has begun differs from `today`; None before.

    Raises ValueError for a run of another experiment.
    """
    record = record_of(store, night)
    if record is None:
        return None
    if record["experiment"] != experiment:
        raise ValueError(
            f"The run {night!r} is of the experiment {record['experiment']!r}, expected one of "
            f"{experiment!r}: another schedule took the name. Run it again."
        )
    then = record["settings"]
    changed = [key for key, value in then.items() if key != "code" and value != today.get(key)]
    return [f"{key}={json.dumps(then[key])}" for key in changed]


def finished(store: Store, night: str) -> Summary | None:
    """Return the summary of a night with all its steps done."""
    with suppress(Damaged):
        if record := record_of(store, night):
            return finished_summary(store, night, record["settings"]["steps"])
    return None


def scored_problems(store: Store, night: str, tasks: Iterable[str]) -> ScoredProblems:
    """Count a night's scored problems by task; none, with a warning, where files are damaged."""
    counts = Counter[str]()
    try:
        counts = problems_played(store, night)
    except Damaged as damage:
        logger.warning("%s The problems of %s count as not played and come again.", damage, night)
    return ScoredProblems({name: counts[name] for name in tasks})
