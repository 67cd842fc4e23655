"""Reading and playing of the episodes that judge a policy."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.loop.evaluation import Evaluator
from agentfly_core.records.dataset import prepare, split
from agentfly_core.records.trajectory import Unscored
from agentfly_core.store.artifact import Artifact, ArtifactKey
from flows.nights import flow_work
from flows.nights.flow_work import Match
from tests.support import judged_night
from tests.support.experiments import experiment as experiment_in
from tests.support.experiments import experiment_of
from tests.support.mixtures import BUYING, SUMS
from tests.support.mixtures import settings_with as mixture
from tests.support.stages import stages_with

DATA = {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 5000, "test": 1000}


def published(experiment: Experiment) -> Artifact:
    """The dataset of an experiment."""

    def write(folder: Path) -> None:
        settings = experiment.settings
        prepare(settings.data, settings.data_seed, folder, folder / "quarantine.json")

    target = StageKeys(experiment.settings).prepare()
    return experiment.store.find(target) or judged_night.published(experiment, target, write)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[Artifact]:
    """The played policies; each solves every second problem."""
    judged: list[Artifact] = []

    def on_split(here: Evaluator, _: Any, policy: Artifact, split: str, step: int) -> None:
        judged.append(policy)
        play(here.experiment, policy, here.data)

    monkeypatch.setattr(flow_work, "TASKS", stages_with(prepare=published))
    monkeypatch.setattr(flow_work, "rollout_services", lambda *_: nullcontext())
    monkeypatch.setattr(Evaluator, "on_split", on_split)
    return judged


def play(experiment: Experiment, policy: Artifact, data: Artifact) -> None:
    def answers(number: int) -> tuple[str, float | Unscored]:
        return "99", float(number % 2)

    judged_night.evaluated(experiment, policy, data, "test", answers)


def match(experiment: Experiment, folder: Path) -> Match:
    def policy(name: str) -> Artifact:
        target = ArtifactKey(f"artifacts/model/{name}", "model", name, {})
        return judged_night.published(
            experiment, target, lambda folder: (folder / "weights").write_text(name) and None
        )

    return Match(experiment, policy("old"), policy("new"), "nightly-2026-11-21", folder / "logs")


def test_only_missing_or_damaged_episodes_are_played(
    tmp_path: Path, judged: list[Artifact]
) -> None:
    experiment = experiment_in(tmp_path, promotion={"confirmation": "none"})
    here = match(experiment, tmp_path)
    data = published(experiment)
    play(experiment, here.champion, data)
    assert here.verdict(0).comparisons[0].problems == 4
    assert judged == [here.challenger]
    assert here.verdict(0).comparisons[0].problems == 4
    assert judged == [here.challenger]
    shard = StageKeys(experiment.settings).evaluation(here.champion, data, "test", 0, {})
    (experiment.store.root / shard.uri / "MANIFEST.json").write_text("{")
    assert here.verdict(0).comparisons[0].problems == 4
    assert judged == [here.challenger, here.champion]


def test_a_win_on_a_mixture_is_confirmed_on_fresh_problems(
    tmp_path: Path, judged: list[Artifact]
) -> None:
    sized = [{**task, "data": {**task["data"], "test": 40}} for task in (SUMS, BUYING)]
    settings = mixture(*sized, rollout={"problems": 3, "group_size": 2, "shard": 500})
    experiment = experiment_of(settings, experiment_in(tmp_path).store)
    here = match(experiment, tmp_path)
    for held in (experiment, experiment.on(experiment.settings.with_fresh_problems(0))):
        data = published(held)
        judged_night.evaluated(held, here.champion, data, "test", lambda _: ("99", 0.0))
        judged_night.evaluated(held, here.challenger, data, "test", lambda _: ("99", 1.0))
    verdict = here.verdict(0)
    assert (judged, verdict.promoted) == ([], True)
    compared = {one.name: one.problems for one in verdict.comparisons}
    assert compared == {
        **{"goal": 80, "reward/exact": 80, "task/shop": 40, "task/sums": 40, "tokens": 80},
        **{"unreadable_calls": 80, "unscored": 80, "confirmation": compared["confirmation"]},
    }
    assert 140 < compared["confirmation"] <= 160, "twice as many, without those that are known"


@pytest.mark.slow
def test_a_confirmation_counts_only_problems_of_others(
    tmp_path: Path, judged: list[Artifact]
) -> None:
    tiny = experiment_in(tmp_path, rollout={"shard": 4000})
    experiment = tiny.on(Settings.model_validate({**tiny.settings.model_dump(), "data": DATA}))
    data = experiment.store.open(published(experiment))
    own = {problem.id for name in ("train", "test") for problem in split(data, name)}
    champion, challenger = match(experiment, tmp_path).on_fresh_problems(1)
    counted = {*champion.by_problem}
    assert counted == {*challenger.by_problem}
    assert counted.isdisjoint(own)
    assert len(counted) >= 1000
