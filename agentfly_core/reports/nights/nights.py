"""The sequence of nights (nightly training runs).

Each night, earlier nights are finished or given up. Then tonight's run is planned, trained and
judged. The steps that need services such as a sampler are in the protocol `NightWork`. A
simulation can implement this protocol without services, and run months of nights in seconds.
"""

import datetime
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from agentfly_core.config.experiment import Night, OrderPosition
from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout, finished_summary, record_of
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.experiment.task import require_rewards
from agentfly_core.pipeline.retention import NoSpace
from agentfly_core.records.dataset import sizes_by_task
from agentfly_core.records.problem_schedule import night_after
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.night_ledger import (
    DECIDED,
    Beginning,
    Champion,
    EntryDetails,
    Judgement,
    NightEntry,
    NightEvent,
    NightHistory,
    NightLedger,
    ScoredProblems,
)
from agentfly_core.reports.nights.promotion_gate import CONFIRMATION, Verdict
from agentfly_core.runs.run import known_run, problems_played, recorded_settings
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.lease import refuse_if_held
from agentfly_core.store.lock import Locked
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import fault

logger = logging.getLogger(__name__)
PREFIX = "nightly-"


class NightWork(Protocol):
    """Performs the parts of a night (nightly training run) that need services such as a sampler."""

    def dataset(self) -> Artifact:
        """Prepare the dataset of the experiment, and return it."""

    def require_space(self, night: str, changes: list[str]) -> None:
        """Raise NoSpace if the files of a training step of the night do not fit on the disk."""

    def train(self, night: str, changes: list[str]) -> Summary:
        """Start or continue the run `night` with the overrides `changes`, and train to its end."""

    def verdict(
        self, night: str, champion: Champion, challenger: Champion, earlier: int
    ) -> Verdict:
        """Compare the policy of a night (the challenger) with the champion.

        `earlier` is the number of confirmations (second comparisons) in earlier nights. The
        number determines the seed of new problems, so each confirmation has different problems.
        """

    def happened(self, entry: NightEntry) -> None:
        """Notify people and other systems of a new event of a night (a nightly training run)."""


@dataclass(frozen=True)
class Nights:
    """The nights (nightly training runs) of an experiment.

    Each night is attempted at most `attempts` times. If `approval` is True, a person decides
    whether a better policy is promoted.
    """

    experiment: Experiment
    ledger: NightLedger
    work: NightWork
    attempts: int
    approval: bool

    def run(self, tonight: str) -> Summary:
        """Finish earlier nights or give them up, then train and judge tonight's run.

        Raises ValueError for an experiment without rewards.
        """
        require_rewards(self.experiment.settings.goal)
        # earlier nights come first, because tonight's plan begins where they ended
        history = self.ledger.read()
        begun = {entry.night for entry in history.entries if entry.event == "began"} - {tonight}
        for night in sorted(begun):
            if not history.last(night, "given_up", *DECIDED):
                self.finish(night)
        return self.play(tonight)

    def finish(self, night: str) -> None:
        """Train and judge the policy of an earlier night.

        The night is given up after `attempts` failed attempts to train, including the attempts
        before this call. If the policy is trained but cannot be judged now, the next night tries to
        judge it. Raises Locked while another process holds the lock of the night's run. Raises
        NoSpace if the disk is full. After Locked or NoSpace, this call makes no further attempt.
        """
        begun = self.ledger.read().attempts(night)
        why = f"The night was started {begun} times, but never finished."
        trained = finished(self.experiment.store, night) is not None
        for tried in range(begun + 1, max(self.attempts, begun + trained) + 1):
            try:
                self.play(night)
                return
            except (Locked, NoSpace):
                raise
            except Exception as error:  # tonight's run can train, even if this night cannot
                logger.exception("The night %s could not be finished.", night)
                why = f"The night was tried {tried} times. The last error: {fault(error)}"
            # the plan of the next night needs this entry
            if self.ledger.read().last(night, "finished"):
                return
        scored = scored_problems(self.experiment.store, night, self.experiment.settings.each)
        self._record(night, "given_up", why, scored)

    def play(self, night: str) -> Summary:
        """Train a night's run to its end, and compare its last policy with the champion.

        Finished training is not repeated. A finished comparison is not repeated either.
        """
        store = self.experiment.store
        summary = finished(store, night)
        # if the process was killed between the summary and the entry, training returns at once
        if summary is None or self.ledger.read().last(night, "finished") is None:
            summary = self.work.train(night, self._begin(night))
            before, after = summary["success_before"], summary["success_after"]
            why = f"Success was {before:.1%} and is {after:.1%}."
            scored = scored_problems(store, night, self.experiment.settings.each)
            self._record(night, "finished", why, scored)
        if self.ledger.read().last(night, *DECIDED) is None:
            self.decide(night)
        return summary

    def decide(self, night: str) -> None:
        """Compare the policy of a night with the champion, and record the decision.

        The champion is the policy that a new policy has to beat. Before the first promotion, the
        night's policy is compared with the policy from which the night started. If another policy
        becomes the champion during the comparison, the comparison is repeated.
        """
        challenger = last_policy(self.experiment.store, night)
        history = self.ledger.read()
        champion = history.champion or policy_at(self.experiment.store, night, 0)
        judged = [e.details for e in history.entries if isinstance(e.details, Judgement)]
        compared = [one.name for each in judged for one in each.verdict.comparisons]
        earlier = compared.count(CONFIRMATION)  # each confirmation uses up problems
        verdict = self.work.verdict(night, champion, challenger, earlier)
        if self.ledger.read().champion != history.champion:
            return self.decide(night)
        event: NightEvent = "worse" if verdict.worse else "kept"
        if verdict.promoted:
            event = "awaits_approval" if self.approval else "promoted"
        self._record(night, event, verdict.why, Judgement(verdict, champion, challenger))

    def _begin(self, night: str) -> list[str]:
        """Record an attempt to train the night's run. Return the overrides to start or continue it.

        Raises Locked while another process holds the lock of the night's run, and NoSpace if the
        disk is full. In both cases, the attempt is not recorded.
        """
        experiment, store = self.experiment, self.experiment.store
        refuse_if_held(store, RunLayout(night).uri)
        history, why = self.ledger.read(), "It is continued."
        plan, today = history.beginning(night), experiment.settings.model_dump(mode="json")
        changes = recorded_changes(store, night, experiment.name, today)
        if changes is None:
            if plan is None:
                start, data = experiment.settings.promotion.start, self.work.dataset()
                plan = beginning(store, history, data, experiment.settings.seed, start)
                why = str(plan)
            changes = [*plan.changes]
        self.work.require_space(night, changes)
        self._record(night, "began", why, plan)
        return changes

    def _record(self, night: str, event: NightEvent, why: str, details: EntryDetails) -> None:
        self.work.happened(self.ledger.append(night, event, why, details))


def policy_at(store: Store, run: str, step: int) -> Champion:
    """Return the policy of a step of a run: its run and step, and its artifact.

    The type `Champion` does not mean that the policy is the current champion.
    """
    return Champion(RunPolicy(run, step), policy_of(store, run, step))


def last_policy(store: Store, run: str) -> Champion:
    """Return the policy of the last step of a run; see `policy_at`."""
    return policy_at(store, run, recorded_settings(known_run(store, run)).steps)


def name_of_night(store: Store, experiment: str, date: datetime.date) -> str:
    """Return the name of a night: `nightly-2026-11-20`.

    If a run of another experiment has this name, the name of the experiment is appended:
    `nightly-2026-11-20-quickstart`.
    """
    record = record_of(store, f"{PREFIX}{date}")
    ours = record is None or record["experiment"] == experiment
    return f"{PREFIX}{date}" if ours else f"{PREFIX}{date}-{experiment}"


def date_of(night: str) -> datetime.date | None:
    """Return the date in the name of a night (a nightly training run), or None without a date."""
    with suppress(ValueError):
        return datetime.date.fromisoformat(night.removeprefix(PREFIX)[:10])
    return None


def beginning(
    store: Store, history: NightHistory, data: Pointer, seed: int, start: str
) -> Beginning:
    """Plan the nightly training run: its first problems, and the policy from which it starts.

    The first problems follow the last problem that the previous night scored. If the data or the
    seed changed, a new epoch begins.

    The night starts from the champion (the policy that a new policy has to beat). If `start` (the
    setting promotion.start) is "last", the night starts from the policy of the last finished night
    instead. If the policy that `start` selects does not exist yet, the night starts from the
    experiment's own model and warm start, with a new optimizer state.
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
    """Return the recorded settings of a night that differ from today's settings, as overrides.

    An interrupted night uses these overrides to continue with the settings with which it began.
    Returns None if the night has not begun. Raises ValueError if the run with the night's name
    belongs to another experiment.
    """
    record = record_of(store, night)
    if record is None:
        return None
    if record["experiment"] != experiment:
        raise ValueError(
            f"The run {night!r} belongs to the experiment {record['experiment']!r}, expected "
            f"{experiment!r}. The other experiment took the name first. Start the night again: "
            "it then gets another name."
        )
    then = record["settings"]
    # `code` is computed, and cannot be set by an override
    changed = [key for key, value in then.items() if key != "code" and value != today.get(key)]
    # overrides are YAML, which contains JSON
    return [f"{key}={json.dumps(then[key])}" for key in changed]


def finished(store: Store, night: str) -> Summary | None:
    """Return the summary of a night if all of its steps are done, else None."""
    with suppress(Damaged):
        if record := record_of(store, night):
            return finished_summary(store, night, record["settings"]["steps"])
    return None


def scored_problems(store: Store, night: str, tasks: Iterable[str]) -> ScoredProblems:
    """Count the problems of each task that a night played and scored.

    If files are damaged, a warning is logged and all counts are 0.
    """
    counts = Counter[str]()
    try:
        counts = problems_played(store, night)
    except Damaged as damage:
        logger.warning(
            "%s The problems of the night %s count as not played, so later nights play them again.",
            damage,
            night,
        )
    return ScoredProblems({name: counts[name] for name in tasks})
