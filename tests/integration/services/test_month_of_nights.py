"""A month of nights in seconds: the ledger, the gate, the schedule and MLflow's aliases are real,
play and updates are scripted.
"""

import asyncio
import datetime
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import pytest
from mlflow import MlflowClient
from prefect.server.schemas.schedules import CronSchedule

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.records.run_record import Summary
from agentfly_core.reports.nights.held_out import HeldOut
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightEntry, NightLedger
from agentfly_core.reports.nights.nights import Nights
from agentfly_core.reports.nights.promotion_gate import BothHeldOut, Verdict, confirmed_verdict
from agentfly_core.runs.tracking.mlflow_client import DIGEST, MlflowStore
from agentfly_core.store.artifact import Artifact
from flows import run_pages
from flows.nights import deployment_schedule, events
from flows.nights.deployment_schedule import record_missed
from flows.run_pages import report_aliases
from tests.support.experiments import experiment as experiment_in
from tests.support.mlflow_store import new_store
from tests.support.scored_nights import Played, published, scripted_run

FIRST = datetime.date(2026, 11, 1)
NIGHTS = [FIRST + datetime.timedelta(days=day) for day in range(30)]
KILLED, HOPELESS, MISSED = NIGHTS[6], NIGHTS[11], NIGHTS[19]
PROBLEMS, HELD_OUT = 40, 1000
MARGIN = 0.05


@cache  # champions and problems come again
def drawn(seed: str) -> float:
    return random.Random(seed).random()


@dataclass
class Month:
    """Nights with policies of given true success: a night changes it by -0.10 to 0.08."""

    experiment: Experiment
    ledger: NightLedger
    data: Artifact
    client: MlflowClient
    truth: dict[str, float] = field(default_factory=dict)
    played: list[Played] = field(default_factory=list)
    events: list[NightEntry] = field(default_factory=list)
    killed: bool = False

    def dataset(self) -> Artifact:
        return self.data

    def require_space(self, night: str, changes: list[str]) -> None:
        pass

    def train(self, night: str, changes: list[str]) -> Summary:
        summary = scripted_run(self.experiment, night, changes, lambda: self.fate(night), self.play)
        champion, steps = self.ledger.read().champion, summary["steps"]
        before = self.truth[str(champion.reference)] if champion else 0.5
        step = random.Random(night).uniform(-0.1, 0.08)
        self.truth |= {f"run:{night}@0": before, f"run:{night}@{steps}": min(before + step, 0.98)}
        digest = self.experiment.store.artifact(f"runs/{night}/steps/{steps:06d}/policy").digest
        self.client.create_model_version("agentfly-tiny", night, tags={DIGEST: digest})
        return summary

    def play(self, played: Played) -> None:
        self.played.append(played)

    def fate(self, night: str) -> None:
        if night.endswith(str(KILLED)) and not self.killed:
            self.killed = True
            raise KeyboardInterrupt
        if night.endswith(str(HOPELESS)):
            raise ValueError("its learner diverges")

    def verdict(
        self, night: str, champion: Champion, challenger: Champion, earlier: int
    ) -> Verdict:
        def both(problems: str) -> BothHeldOut:
            old, new = (self.held_out(str(p.reference), problems) for p in (champion, challenger))
            return old, new

        settings = self.experiment.settings.promotion
        return confirmed_verdict(
            "fresh", both("test"), {}, lambda: both(f"fresh {earlier}"), settings
        )

    def held_out(self, policy: str, problems: str) -> HeldOut:
        """One episode of each problem; half of the outcome depends on the problem alone."""
        solved = {}
        for number in range(HELD_OUT):
            own = drawn(f"{problems} {number}")
            chance = drawn(f"{policy} {problems} {number}")
            success = self.truth[policy]
            hit = own < success if chance < 0.5 else chance * 2 - 1 < success
            solved[f"p{number}"] = {"goal": float(hit), "tokens": 30.0, "unreadable_calls": 0.0}
        return HeldOut(problems, solved)

    def happened(self, entry: NightEntry) -> None:
        self.events.append(entry)
        if isinstance(entry.details, Judgement):
            report_aliases(self.ledger, self.experiment.site)


@pytest.fixture(scope="module")
def month(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Month]:
    folder = tmp_path_factory.mktemp("month")
    rollout = {"problems": 4, "group_size": 2}
    experiment = experiment_in(folder, steps=3, rollout=rollout)
    place = MlflowStore.choose(folder, new_store(folder))
    client = MlflowClient(place.uri)
    client.create_registered_model("agentfly-tiny")
    data = published(experiment, "artifacts/data", "train", PROBLEMS)
    ledger = NightLedger(experiment.store, experiment.name)
    month = Month(experiment, ledger, data, client)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_pages, "mlflow_place", lambda *_: place)
        patch.setattr(events, "emit", lambda *_: None)
        for today in NIGHTS:
            patch.setattr(
                deployment_schedule, "scheduled_nights", lambda *_, day=today: scheduled(day)
            )
            if today != MISSED:
                record_missed(ledger, today)
                run(Nights(experiment, ledger, month, 3, False), today)
        yield month


def scheduled(until: datetime.date) -> list[datetime.date]:
    """The days on which the shipped schedule starts a night, up to this one."""
    start, end = (
        datetime.datetime.combine(day, datetime.time(1), datetime.UTC)
        for day in (FIRST, until + datetime.timedelta(days=1))
    )
    dates = asyncio.run(CronSchedule(cron="0 2 * * *", timezone="UTC").get_dates(40, start, end))
    return [moment.date() for moment in dates]


def run(nights: Nights, today: datetime.date) -> None:
    try:
        nights.run(f"nightly-{today}")
    except (KeyboardInterrupt, ValueError):
        assert today in (KILLED, HOPELESS)


def test_every_problem_is_scored_once_an_epoch(month: Month) -> None:
    by_epoch = Counter(one.epoch for one in month.played)
    scored = Counter((one.epoch, one.problem) for one in month.played)
    assert {*scored.values()} == {1}
    *full, last = sorted(by_epoch.items())
    assert full == [(epoch, PROBLEMS) for epoch in range(len(full))]
    # 28 nights of 12 problems, and the 4 that the hopeless one had scored
    assert len(full) * PROBLEMS + last[1] == 28 * 12 + 4


def test_no_seed_is_used_twice(month: Month) -> None:
    seeds = [seed for one in month.played for seed in one.seeds]
    assert len({*seeds}) == len(seeds) == 2 * len(month.played)


def test_killed_failed_and_missed_nights_are_in_the_ledger(month: Month) -> None:
    def events(night: datetime.date) -> list[str]:
        return [e.event for e in month.ledger.read().entries if e.night == f"nightly-{night}"]

    decided = {"promoted", "kept", "worse"}
    assert events(KILLED)[:3] == ["began", "began", "finished"]
    assert events(KILLED)[3] in decided
    assert events(HOPELESS) == ["began", "began", "began", "given_up"]
    assert events(MISSED) == ["missed"]
    others = {*NIGHTS} - {KILLED, HOPELESS, MISSED}
    assert all(events(night)[:2] == ["began", "finished"] for night in others)
    assert all(events(night)[2] in decided for night in others)


def test_true_success_never_falls_by_the_margin(
    month: Month,
) -> None:
    champions = [entry.champion for entry in month.ledger.read().entries if entry.champion]
    true = [month.truth[str(champion.reference)] for champion in champions]
    assert len(true) >= 3
    assert all(later > before - MARGIN for before, later in pairwise(true))
    assert true[-1] == max(true) > 0.55
    reigns = month.client.get_model_version_by_alias("agentfly-tiny", "champion")
    assert reigns.tags[DIGEST] == champions[-1].policy.digest
    challenger = month.client.get_model_version_by_alias("agentfly-tiny", "challenger")
    assert challenger.source == f"nightly-{NIGHTS[-1]}"
