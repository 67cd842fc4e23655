"""Months of nights: starts, ends, failures and champions."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.config.experiment import Night, OrderPosition
from agentfly_core.config.promotion import Promotion
from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment import own_modules
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.pipeline.retention import NoSpace
from agentfly_core.records.ledger import FILE
from agentfly_core.records.parquet import write_problems
from agentfly_core.records.trajectory import Problem, of_task
from agentfly_core.reports.nights.night_ledger import (
    Beginning,
    Champion,
    ScoredProblems,
)
from agentfly_core.reports.nights.nights import beginning
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.lock import Locked
from tests.support.experiments import experiment as experiment_in
from tests.support.experiments import experiment_of
from tests.support.mixtures import settings_with
from tests.support.scored_nights import published
from tests.support.scripted_nights import Scripted, nights


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """One of 8 training problems; a step plays 2."""
    return experiment_in(tmp_path, steps=2, rollout={"problems": 2})


@pytest.fixture
def work(experiment: Experiment) -> Scripted:
    return Scripted(experiment, published(experiment, "artifacts/data", "train", 8))


def broken() -> None:
    raise ValueError("no sampler came up")


def positions(work: Scripted) -> dict[str, Night]:
    plans = [(entry.night, entry.details) for entry in work.reported]
    return {night[-2:]: plan.night for night, plan in plans if isinstance(plan, Beginning)}


def night(number: int, epoch: int, problem: int) -> Night:
    place = OrderPosition(epoch=epoch, problem=problem)
    return Night(number=number, tasks={"single": place})


def test_each_night_continues_after_the_problems_of_the_last(work: Scripted) -> None:
    for day in (20, 21, 22):
        nights(work).run(f"nightly-2026-11-{day}")
    assert positions(work) == {
        "20": Night(number=1),
        "21": night(2, epoch=0, problem=4),
        "22": night(3, epoch=1, problem=0),
    }


def test_each_task_of_a_mixture_continues_after_its_problems(experiment: Experiment) -> None:
    uri, mixture = "artifacts/data", experiment_of(settings_with(), experiment.store)
    counts = {"sums": 6, "shop": 3}
    problems = [
        of_task(Problem(str(n), "?"), task) for task, count in counts.items() for n in range(count)
    ]
    with experiment.store.publish(ArtifactKey(uri, "prepare", uri, {})) as folder:
        write_problems(folder / "train.parquet", problems)
    work = Scripted(mixture, experiment.store.artifact(uri))
    for day in (20, 21):  # of 2 steps of 2 sums and 1 wish
        nights(work).run(f"nightly-2026-11-{day}")
    began, finished = (
        [entry for entry in work.reported if entry.event == event]
        for event in ("began", "finished")
    )
    assert [entry.why for entry in began] == [
        "Night 1 begins at problem 0 of 6 in epoch 0 of sums, problem 0 of 3 in epoch 0 of shop.",
        "Night 2 begins at problem 4 of 6 in epoch 0 of sums, problem 2 of 3 in epoch 0 of shop.",
    ]
    assert finished[0].details == ScoredProblems({"sums": 4, "shop": 2})
    begins = beginning(mixture.store, nights(work).ledger.read(), work.data, 0, "champion")
    places = {"sums": OrderPosition(epoch=1, problem=2), "shop": OrderPosition(epoch=1, problem=1)}
    assert begins.night == Night(number=3, tasks=places)


def test_other_data_begin_a_new_epoch(work: Scripted) -> None:
    nights(work).run("nightly-2026-11-20")
    work.data = published(work.experiment, "artifacts/other", "train", 6)
    nights(work).run("nightly-2026-11-21")
    assert positions(work)["21"] == night(2, epoch=1, problem=0)


def test_a_night_starts_from_the_champion(work: Scripted) -> None:
    nights(work).run("nightly-2026-11-20")
    work.wins = False
    for day in (21, 22):
        nights(work).run(f"nightly-2026-11-{day}")
    assert work.compared == [
        ("run:nightly-2026-11-20@0", "run:nightly-2026-11-20@2", 0),
        ("run:nightly-2026-11-20@2", "run:nightly-2026-11-21@2", 0),
        ("run:nightly-2026-11-20@2", "run:nightly-2026-11-22@2", 0),
    ]
    for night in (21, 22):
        record = work.experiment.store.read_json(f"runs/nightly-2026-11-{night}/run.json")
        start = record["settings"]["model"], record["settings"]["warm_start"]
        assert start == ("run:nightly-2026-11-20@2", None)


def test_a_night_may_start_from_the_last_policy(tmp_path: Path) -> None:
    experiment = experiment_in(tmp_path, rollout={"problems": 2}, promotion=Promotion(start="last"))
    work = Scripted(experiment, published(experiment, "artifacts/data", "train", 8), wins=False)
    for day in (20, 21):
        nights(work).run(f"nightly-2026-11-{day}")
    record = experiment.store.read_json("runs/nightly-2026-11-21/run.json")
    assert record["settings"]["model"] == "run:nightly-2026-11-20"


@pytest.mark.parametrize(
    ("wins", "worse", "approval", "event"),
    [
        (True, False, False, "promoted"),
        (True, False, True, "awaits_approval"),
        (False, False, False, "kept"),
        (False, True, True, "worse"),
    ],
)
def test_the_outcome_of_a_night_is_recorded_and_reported(
    work: Scripted, wins: bool, worse: bool, approval: bool, event: str
) -> None:
    work.wins, work.worse = wins, worse
    nights(work, approval).run("nightly-2026-11-20")
    assert [entry.event for entry in work.reported] == ["began", "finished", event]
    assert (nights(work).ledger.read().champion is not None) == (event == "promoted")


def killed(night: str) -> None:
    raise KeyboardInterrupt


def test_a_killed_night_is_finished_first(work: Scripted) -> None:
    work.fate = killed
    with pytest.raises(KeyboardInterrupt):
        nights(work).run("nightly-2026-11-20")
    work.fate = lambda night: None
    nights(work).run("nightly-2026-11-21")
    assert [(entry.night[-2:], entry.event) for entry in work.reported] == [
        ("20", "began"),
        ("20", "began"),
        ("20", "finished"),
        ("20", "promoted"),
        ("21", "began"),
        ("21", "finished"),
        ("21", "promoted"),
    ]
    assert positions(work)["21"] == night(2, epoch=0, problem=4)


def test_a_full_disk_does_not_count_as_an_attempt(work: Scripted) -> None:
    work.full = True
    for day in (20, 21, 22):
        with pytest.raises(NoSpace):
            nights(work).run(f"nightly-2026-11-{day}")
    assert work.reported == []


def test_a_night_with_a_damaged_record_is_given_up(work: Scripted) -> None:
    work.fate = killed
    with pytest.raises(KeyboardInterrupt):
        nights(work).run("nightly-2026-11-20")
    work.fate = lambda night: None
    record = work.experiment.store.root / RunLayout("nightly-2026-11-20").record
    record.write_text(record.read_text().replace("tiny", "tony"))
    nights(work).run("nightly-2026-11-21")
    (given_up,) = (entry for entry in work.reported if entry.event == "given_up")
    assert given_up.night == "nightly-2026-11-20"
    assert "run.json is damaged" in given_up.why


def test_problems_of_a_given_up_night_are_not_repeated(
    work: Scripted,
) -> None:
    def hopeless(night: str) -> None:
        if night.endswith("20"):
            raise ValueError("the rewards are broken")

    work.fate = hopeless
    with pytest.raises(ValueError, match="broken"):
        nights(work).run("nightly-2026-11-20")
    for day in (21, 22):
        nights(work).run(f"nightly-2026-11-{day}")
    of_it = [entry for entry in work.reported if entry.night.endswith("20")]
    assert [entry.event for entry in of_it] == ["began", "began", "given_up"]
    assert of_it[-1].why.endswith("The last error: ValueError: the rewards are broken")
    assert positions(work)["21"] == night(2, epoch=0, problem=2)  # one step was scored


def test_a_night_killed_before_its_judgement_is_judged_later(work: Scripted) -> None:
    nights(work).run("nightly-2026-11-20")
    ledger = nights(work).ledger
    ledger.store.remove("nights/tiny/000003.json")
    ledger.store.write_json("nights/tiny/head.json", {"number": 2})
    nights(work).run("nightly-2026-11-21")
    assert [(e.night[-2:], e.event) for e in work.reported[3:5]] == [
        ("20", "promoted"),
        ("21", "began"),
    ]


def test_a_decided_night_does_not_begin_again(work: Scripted) -> None:
    summaries = [nights(work).run("nightly-2026-11-20") for _ in range(2)]
    assert summaries[0] == summaries[1]
    assert [entry.event for entry in work.reported] == ["began", "finished", "promoted"]


def test_an_unfinished_night_with_edited_code_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    text = (
        "from tests.support.problems import clean\n\ndef own(*splits):\n    return clean(*splits)\n"
    )
    (tmp_path / "night_problems.py").write_text(text)
    data = {"use": "night_problems:own", "train": 8, "test": 4}
    here = experiment_in(tmp_path, steps=2, rollout={"problems": 2}, data=data)
    work = Scripted(here, published(here, "artifacts/data", "train", 8), lambda _: broken())
    with pytest.raises(ValueError, match="no sampler"):
        nights(work).run("nightly-2026-11-20")
    (tmp_path / "night_problems.py").write_text(text.replace("own(*splits)", "own(*all)"))
    monkeypatch.delitem(sys.modules, "night_problems", raising=False)
    own_modules._package.cache_clear()
    work.fate = lambda _: None
    nights(work).run("nightly-2026-11-21")
    (given_up,) = (entry for entry in work.reported if entry.event == "given_up")
    assert given_up.night == "nightly-2026-11-20"
    assert "The code of night_problems" in given_up.why
    assert given_up.details == ScoredProblems({"single": 2})
    assert positions(work)["21"] == night(2, epoch=0, problem=2)


def test_a_night_that_cannot_be_judged_is_not_given_up(work: Scripted) -> None:
    work.judge = broken
    for _ in range(4):
        with pytest.raises(ValueError, match="no sampler"):
            nights(work).run("nightly-2026-11-20")
    work.judge = lambda: None
    nights(work).run("nightly-2026-11-21")
    of_it = [entry.event for entry in work.reported if entry.night.endswith("20")]
    assert of_it == ["began", "finished", "promoted"]


def test_a_trained_night_is_judged_after_its_last_attempt(work: Scripted) -> None:
    work.fate = killed
    with pytest.raises(KeyboardInterrupt):
        nights(work).run("nightly-2026-11-20")
    work.fate, work.judge = lambda night: None, broken
    with pytest.raises(ValueError, match="no sampler"):
        nights(work).run("nightly-2026-11-20")
    work.judge = lambda: None
    nights(work).run("nightly-2026-11-21")
    of_it = [entry.event for entry in work.reported if entry.night.endswith("20")]
    assert of_it == ["began", "began", "finished", "promoted"]


def test_a_trained_night_that_cannot_be_opened_is_given_up(work: Scripted) -> None:
    """It was killed after its summary, before its entry; then its code was edited."""
    nights(work).run("nightly-2026-11-20")
    store = work.experiment.store
    for file in ("nights/tiny/000002.json", "nights/tiny/000003.json"):
        store.remove(file)
    store.write_json("nights/tiny/head.json", {"number": 1})
    work.fate = lambda night: broken() if night.endswith("20") else None
    nights(work).run("nightly-2026-11-21")
    assert [(entry.night[-2:], entry.event) for entry in work.reported[3:6]] == [
        ("20", "began"),
        ("20", "given_up"),
        ("21", "began"),
    ]
    assert positions(work)["21"] == night(2, epoch=0, problem=4)


def test_a_policy_is_judged_again_after_another_promotion(
    work: Scripted,
) -> None:
    nights(work).run("nightly-2026-11-20")
    other = Champion(RunPolicy("other", 9), work.data)
    begun = len(work.compared)

    def promote_another() -> None:
        if len(work.compared) == begun + 1:
            nights(work).ledger.append("other", "promoted", "", other)

    work.judge = promote_another
    nights(work).run("nightly-2026-11-21")
    assert [champion for champion, *_ in work.compared[begun:]] == [
        "run:nightly-2026-11-20@2",
        "run:other@9",
    ]


def test_a_night_with_the_name_of_another_experiment_is_refused(work: Scripted) -> None:
    other = replace(work.experiment, name="shop")
    with opened(other, "nightly-2026-11-20"):
        pass
    with pytest.raises(ValueError, match="experiment 'shop', expected 'tiny'"):
        nights(work).play("nightly-2026-11-20")
    assert work.reported == []


def test_a_night_of_another_process_does_not_count_as_an_attempt(work: Scripted) -> None:
    nights(work).ledger.append("nightly-2026-11-20", "began")
    with opened(work.experiment, "nightly-2026-11-20"), pytest.raises(Locked):
        nights(work).run("nightly-2026-11-21")
    assert work.reported == []


def test_the_first_night_starts_without_an_optimizer_state(tmp_path: Path) -> None:
    update = {"optimizer_state": "parent"}
    experiment = experiment_in(tmp_path, rollout={"problems": 2}, update=update)
    work = Scripted(experiment, published(experiment, "artifacts/data", "train", 8))
    states = []
    for day in (20, 21):
        nights(work).run(f"nightly-2026-11-{day}")
        record = experiment.store.read_json(f"runs/nightly-2026-11-{day}/run.json")
        states.append(record["settings"]["update"].get("optimizer_state", "fresh"))
    assert states == ["fresh", "parent"]


def test_a_night_without_outputs_begins_again(
    work: Scripted,
) -> None:
    ledger = nights(work).ledger
    ledger.append("nightly-2026-11-20", "began")
    nights(work).run("nightly-2026-11-21")
    assert [(e.night[-2:], e.event) for e in work.reported[:2]] == [
        ("20", "began"),
        ("20", "finished"),
    ]


def test_a_decided_night_without_its_run_is_not_played_again(work: Scripted) -> None:
    work.wins = False
    for day in (20, 21):
        nights(work).run(f"nightly-2026-11-{day}")
    work.experiment.store.remove("runs/nightly-2026-11-20")
    nights(work).run("nightly-2026-11-22")
    of_it = [entry.event for entry in work.reported if entry.night.endswith("20")]
    assert of_it == ["began", "finished", "kept"]


def test_a_damaged_step_of_an_old_night_stops_no_later_one(
    work: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights(work).run("nightly-2026-11-20")
    folder = work.experiment.store.root / RunLayout("nightly-2026-11-20").step(1).scored
    (folder / FILE).write_bytes(b"")
    monkeypatch.setattr("agentfly_core.store.store._opened", {})  # as in another process
    nights(work).run("nightly-2026-11-21")
    assert positions(work)["21"] == night(2, epoch=0, problem=4)
