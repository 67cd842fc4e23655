"""The report of a night. It is computed from the store alone, at any time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import (
    RunLayout,
    StepMetrics,
    metrics_of,
    record_of,
    summary_of,
)
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.pipeline.stop_conditions import due
from agentfly_core.records.intervals import Interval, improvement
from agentfly_core.records.run_record import RunRecord, Summary
from agentfly_core.records.trajectory import Scored, Trajectory
from agentfly_core.reports.nights.episode_choice import PairKind, PlayedPair, choose, pairs
from agentfly_core.reports.nights.held_out import evaluated_episodes
from agentfly_core.reports.nights.night_ledger import Champion, NightEntry, NightLedger
from agentfly_core.reports.nights.promotion import Verdict
from agentfly_core.runs.run import experiment_of_run, recorded_settings
from agentfly_core.runs.summary import Evaluation, run_ledger, stored_evaluation
from agentfly_core.store.store import Pointer, Store

CURVES = {
    "reward in training": "agent/rollout/reward",
    "success in training": "agent/rollout/success",
}
VALIDATION = "success on validation"
TOKENS = "agent/rollout/avg_sampled_tokens"
START, END, CHAMPION = "the night's first policy", "its last policy", "the champion"
Series = Sequence[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class SignSeen:
    """A health sign that was logged: `SignSeen("entropy", (11, 12), "train/entropy is 0.0004, below
    0.001, for 4 steps in a row")`; `text` is its message at the last step.
    """

    name: str
    steps: Sequence[int]
    text: str


@dataclass(frozen=True, slots=True)
class Effort:
    """Steps, time and tokens of a night: `Effort(steps=15, planned=15, attempts=1, hours=6.1,
    seconds={"rollout": 9000.0, ...}, tokens=1234567, price_per_hour=None)`.

    `steps` are fewer than `planned` where the night's hours were over. `hours` is the sum over its
    attempts, each from its start to its last recorded event; `tokens` counts the tokens that were
    sampled for training.
    """

    steps: int
    planned: int
    attempts: int
    hours: float
    seconds: Mapping[str, float]
    tokens: int
    price_per_hour: float | None

    @property
    def cost(self) -> float | None:
        """Hours times the site's price of one, where it has a price."""
        return None if self.price_per_hour is None else self.hours * self.price_per_hour


@dataclass(frozen=True, slots=True)
class NightReport:
    """A finished and judged night.

    `champion` is the reference of the policy that the night was compared with. `held_out` contains
    the evaluations of the champion and of the night's first and last policies on the test problems.
    `gain` is the rise of success from the first to the last policy, with its 95 % interval.
    `history` contains the night's entries in the ledger.
    """

    night: str
    experiment: str
    champion: str
    verdict: Verdict
    history: Sequence[NightEntry]
    held_out: Mapping[str, Evaluation]
    gain: tuple[float, Interval]
    curves: Mapping[str, Series]
    signs: Sequence[SignSeen]
    episodes: Sequence[tuple[PairKind, PlayedPair]]
    effort: Effort


def night_report(store: Store, night: str) -> NightReport:
    """The report of a night; raises ValueError for a run that is not a finished and judged night,
    and for a dataset that is missing from the store.
    """
    stored = _Stored.of(store, night)
    champion, challenger = stored.champion.policy, stored.challenger.policy
    held_out = stored.held_out()
    before, after = held_out[START].solved, held_out[END].solved
    # on the problems of which both have a scored episode
    common = before.keys() & after.keys()
    gain = improvement(*({name: each[name] for name in common} for each in (before, after)))
    return NightReport(
        night=night,
        experiment=stored.record["experiment"],
        champion=stored.champion.reference,
        verdict=Verdict.from_json(stored.details["verdict"]),
        history=stored.history,
        held_out=held_out,
        gain=gain,
        curves=stored.curves(),
        signs=stored.signs(),
        episodes=choose(pairs(stored.played(champion), stored.played(challenger))),
        effort=stored.effort(),
    )


@dataclass(frozen=True)
class _Stored:
    """Stored records of a night."""

    experiment: Experiment
    record: RunRecord
    summary: Summary
    history: Sequence[NightEntry]
    judged: NightEntry

    @classmethod
    def of(cls, store: Store, night: str) -> _Stored:
        """Load a night; raises ValueError for a run that is not a finished and judged night."""
        record, summary = record_of(store, night), summary_of(store, night)
        ledger = NightLedger(store, record["experiment"]) if record else None
        history = [entry for entry in ledger.entries() if entry.night == night] if ledger else []
        judged = [entry for entry in history if "verdict" in entry.details]
        if record is None or summary is None or not judged:
            raise ValueError(
                f"{night!r} in {store.uri} is no night that was finished and judged, so there is "
                "no report of it. `agentfly nights EXPERIMENT` shows what became of each night."
            )
        settings = recorded_settings(record)
        if store.get(StageKeys(settings).prepare().uri) is None:
            raise ValueError(
                f"The dataset of {night!r} is not in {store.uri}, or the files that it was made of "
                "have changed, so what was played on it is not found. A report that was written "
                f"before is {RunLayout(night).report}."
            )
        return cls(experiment_of_run(record, store), record, summary, history, judged[-1])

    @property
    def details(self) -> Mapping[str, Any]:
        return self.judged.details

    @property
    def champion(self) -> Champion:
        return Champion.from_json(self.details["champion"])

    @property
    def challenger(self) -> Champion:
        return Champion.from_json(self.details["challenger"])

    @cached_property
    def steps(self) -> Sequence[StepMetrics]:
        layout, store = RunLayout(self.judged.night), self.experiment.store
        numbers = self.experiment.settings.own_steps
        return [metrics_of(store, layout.step(number)) for number in numbers]

    def held_out(self) -> dict[str, Evaluation]:
        """The evaluations on the test problems; the champion's only where it is not the policy that
        the night started from.
        """
        start = policy_of(self.experiment.store, self.judged.night, 0)
        policies = {START: start, END: self.challenger.policy}
        if self.champion.policy.digest != start.digest:
            policies[CHAMPION] = self.champion.policy
        return {
            who: stored_evaluation(self.experiment, policy, "test")
            for who, policy in policies.items()
        }

    def curves(self) -> dict[str, Series]:
        """Curves over the steps. A curve without any measured step is left out."""
        curves: dict[str, Series] = {}
        for title, name in CURVES.items():
            measured = [step for step in self.steps if name in step["metrics"]]
            curves[title] = [(step["step"], step["metrics"][name]) for step in measured]
        layout, store, validation = RunLayout(self.judged.night), self.experiment.store, []
        for number in self.experiment.settings.own_steps:
            policy = store.artifact(layout.step(number).policy)
            with suppress(FileNotFoundError):  # it was not evaluated
                success = stored_evaluation(self.experiment, policy, "validation").success
                validation.append((number, success))
        curves[VALIDATION] = validation
        return {title: curve for title, curve in curves.items() if curve}

    def signs(self) -> list[SignSeen]:
        """The signs that were logged, with their steps."""
        by_name: dict[str, list[tuple[int, str]]] = {}
        for step in self.steps:
            for name, sign in due(self.experiment.settings.health, step["metrics"]).items():
                lasted = int(step["metrics"][f"health/{name}"])
                text = sign.message(step["metrics"], lasted)
                by_name.setdefault(name, []).append((step["step"], text))
        return [
            SignSeen(name, [step for step, _ in seen], seen[-1][1])
            for name, seen in by_name.items()
        ]

    def played(self, policy: Pointer) -> Iterable[tuple[Trajectory, Scored]]:
        """A policy's episodes on the test problems."""
        store, keys = self.experiment.store, StageKeys(self.experiment.settings)
        data = store.artifact(keys.prepare().uri)
        shards = self.experiment.evaluation_keys(policy, data, "test")
        trajectories, scores = evaluated_episodes(store, keys, shards)
        by_id = {score.trajectory_id: score for score in scores}
        return ((trajectory, by_id[trajectory.id]) for trajectory in trajectories)

    def effort(self) -> Effort:
        """Steps, time and tokens of the night."""
        numbers = self.experiment.settings.own_steps
        ledger = run_ledger(self.experiment.store, self.judged.night, numbers)
        episodes = ledger.groupby("step")["episodes"].sum()
        tokens = [step["metrics"][TOKENS] * episodes[step["step"]] for step in self.steps]
        done = self.experiment.settings.steps
        return Effort(
            steps=done,
            planned=self.record.get("planned_steps", done),
            attempts=sum(entry.event == "began" for entry in self.history),
            hours=self.hours(),
            seconds=self.summary["seconds"],
            tokens=round(sum(tokens)),
            price_per_hour=self.record["site"].get("price_per_hour"),
        )

    def hours(self) -> float:
        """The hours of all attempts, each from its start to its last recorded event."""
        ended = [entry.time_ms for entry in self.history if entry.event == "finished"]
        left = [*(step["time_ms"] for step in self.steps), *ended, self.judged.time_ms]
        began = [entry.time_ms for entry in self.history if entry.event == "began"]
        spent = 0
        for start, following in zip(began, [*began[1:], math.inf], strict=True):
            last = max((time for time in left if start <= time < following), default=start)
            spent += last - start
        return spent / 3_600_000
