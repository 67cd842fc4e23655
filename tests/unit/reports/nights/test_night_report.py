"""The report of a night is read from what the store has, and says what became of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.records.trajectory import Unscored
from agentfly_core.reports.nights.night_ledger import Champion, NightLedger
from agentfly_core.reports.nights.night_page import page_of
from agentfly_core.reports.nights.night_report import night_report
from agentfly_core.runs.run import opened
from agentfly_core.store.store import Store
from agentfly_core.system.formats.hashing import digest
from tests.support.judged_night import evaluated, played_night

NIGHT = "nightly-2026-11-21"
TESTS = 40


def before(number: int) -> tuple[str, float | Unscored]:
    """Solves the first ten problems, and the last."""
    return f"old {number}", float(number < 10 or number == TESTS - 1)


def after(number: int) -> tuple[str, float | Unscored]:
    """Solves the first 30; the score of one is lost."""
    if number == 5:
        return "lost", Unscored("exact: TimeoutError")
    return f"new {number}", float(number < 30)


def steps(count: int) -> list[dict[str, float]]:
    return [
        {
            "agent/rollout/reward": number / 10,
            "agent/rollout/success": number / 20,
            "agent/rollout/avg_sampled_tokens": 12.5,
        }
        for number in range(1, count + 1)
    ]


def experiment_with(folder: Path, validation: int) -> Experiment:
    """An experiment of three steps, with its store in a folder."""
    settings = {
        "model": "nano:calculator",
        "data": {
            "use": "tests.support.problems:clean",
            "train": 8,
            "validation": validation,
            "test": TESTS,
        },
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "rollout": {"shard": 64},
        "promotion": {"unscored": None},
        "steps": 3,
    }
    return Experiment.of(
        "tiny", Settings.model_validate(settings), {}, Site(), Store.at(str(folder), folder)
    )


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return experiment_with(tmp_path, validation=4)


@pytest.fixture
def ledger(experiment: Experiment) -> NightLedger:
    return played_night(experiment, NIGHT, before, after, steps(3))


def test_success_rises_by_the_paired_difference_of_the_problems_that_both_scored(
    experiment: Experiment, ledger: NightLedger
) -> None:
    report = night_report(experiment.store, NIGHT)
    first, last = report.held_out.values()
    assert (first.success, len(first.solved)) == (11 / 40, 40)
    assert (last.success, len(last.solved)) == (29 / 39, 39)
    gain, (low, high) = report.gain
    # of the 39 problems without the lost one: 20 gained, 1 lost
    assert gain == pytest.approx(19 / 39)
    assert (low, high) == pytest.approx((0.3127, 0.6617), abs=1e-4)
    assert report.verdict.promoted and report.champion == f"run:{NIGHT}@0"


def test_a_report_is_the_same_whenever_it_is_read(
    experiment: Experiment, ledger: NightLedger
) -> None:
    assert page_of(night_report(experiment.store, NIGHT)) == page_of(
        night_report(Store.at(experiment.store.uri, Path("unused")), NIGHT)
    )


def test_ten_episodes_are_shown_those_that_changed_first(
    experiment: Experiment, ledger: NightLedger
) -> None:
    chosen = night_report(experiment.store, NIGHT).episodes
    assert [kind for kind, _ in chosen] == [
        *["better"] * 3,
        "worse",
        *["best"] * 3,
        *["worst"] * 3,
    ]
    shown = [pair.challenger.trajectory.problem.id for _, pair in chosen]
    assert len({*shown}) == 10 and "c-005" not in shown
    assert shown[3] == "c-039"
    changes = [pair.change for _, pair in chosen]
    assert changes == [1.0] * 3 + [-1.0] + [0.0] * 6


def test_a_night_took_its_attempts_hours_tokens_and_price(
    experiment: Experiment, ledger: NightLedger
) -> None:
    store, record = experiment.store, experiment.store.read_json(RunLayout(NIGHT).record)
    priced = {**record, "site": {**record["site"], "price_per_hour": 30.0}}
    store.write_json(RunLayout(NIGHT).record, priced)
    effort = night_report(store, NIGHT).effort
    assert (effort.steps, effort.planned, effort.attempts) == (3, 3, 1)
    assert effort.tokens == 3 * 8 * 12.5
    assert effort.hours == pytest.approx(3 / 60, abs=1e-6)  # the last step ended 3 minutes later
    assert effort.cost == pytest.approx(1.5, abs=1e-4)
    assert effort.seconds["rollout"] == 180.0


def test_the_hours_of_a_night_are_those_from_each_beginning_to_the_last_thing_it_left(
    experiment: Experiment, ledger: NightLedger
) -> None:
    began = experiment.store.read_json(f"{ledger.uri}/000001.json")
    earlier = {**began, "time_ms": began["time_ms"] - 3_600_000}
    for number, entry in enumerate([earlier, *ledger.chain.read()[1:]], 1):
        entry = {**entry, "before": digest(earlier) if number > 1 else ""}
        experiment.store.write_json(f"{ledger.uri}/{number:06d}.json", entry)
        earlier = entry
    ledger.append(NIGHT, "began")  # the steps ended up to 3 minutes after this
    effort = night_report(experiment.store, NIGHT).effort
    assert effort.attempts == 2
    assert effort.hours == pytest.approx(1 + 3 / 60, abs=1e-2)


def test_a_champion_that_the_night_did_not_start_from_is_compared_and_shown(
    experiment: Experiment, ledger: NightLedger
) -> None:
    store, data = (
        experiment.store,
        experiment.store.artifact(StageKeys(experiment.settings).prepare().uri),
    )
    other = Champion("run:nightly-2026-11-19@2", store.artifact(RunLayout(NIGHT).step(2).policy))
    evaluated(experiment, other.policy, data, "test", lambda number: ("other", 1.0))
    judged = store.read_json(f"{ledger.uri}/000003.json")
    judged["details"]["champion"] = other.to_json()
    store.write_json(f"{ledger.uri}/000003.json", judged)
    report = night_report(store, NIGHT)
    assert [one.success for one in report.held_out.values()] == [11 / 40, 29 / 39, 1.0]
    assert [kind for kind, _ in report.episodes] == [*["worse"] * 3, *["best"] * 3, *["worst"] * 4]
    assert "The champion was run:nightly-2026-11-19@2." in page_of(report)


def test_a_night_without_a_price_has_no_cost(experiment: Experiment, ledger: NightLedger) -> None:
    report = night_report(experiment.store, NIGHT)
    assert report.effort.cost is None and "cost" not in page_of(report)


def test_a_night_whose_hours_were_over_says_how_many_steps_were_planned(
    experiment: Experiment, ledger: NightLedger
) -> None:
    with opened(experiment, NIGHT) as run:
        run.ending_at(2)
    report = night_report(experiment.store, NIGHT)
    assert (report.effort.steps, report.effort.planned) == (2, 3)
    assert "| steps | 2 of 3 (its hours were over) |" in page_of(report)


def test_signs_are_told_with_the_steps_at_which_they_were_seen(experiment: Experiment) -> None:
    quiet, odd = {"train/skipped_steps": 0.0}, {"train/skipped_steps": 2.0}
    played = [{**each, **more} for each, more in zip(steps(3), (odd, quiet, odd), strict=True)]
    played_night(experiment, NIGHT, before, after, played)
    (sign,) = night_report(experiment.store, NIGHT).signs
    assert (sign.name, sign.steps) == ("skipped_steps", [1, 3])
    assert sign.text == "train/skipped_steps is 2, above 0"


def test_the_curve_of_validation_is_there_where_steps_were_validated(
    experiment: Experiment, ledger: NightLedger
) -> None:
    assert [*night_report(experiment.store, NIGHT).curves] == [
        "reward in training",
        "success in training",
    ]
    data = experiment.store.artifact(StageKeys(experiment.settings).prepare().uri)
    for number, solved in ((1, 1), (3, 3)):
        policy = experiment.store.artifact(RunLayout(NIGHT).step(number).policy)
        evaluated(experiment, policy, data, "validation", lambda i, n=solved: ("", float(i < n)))
    curves = night_report(experiment.store, NIGHT).curves
    assert curves["success on validation"] == [(1, 0.25), (3, 0.75)]
    assert curves["reward in training"] == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_a_night_without_validation_problems_has_the_curves_that_were_measured(
    tmp_path: Path,
) -> None:
    bare = experiment_with(tmp_path, validation=0)
    silent = {"agent/rollout/avg_sampled_tokens": 1.0}  # of a step without a reward
    played_night(bare, NIGHT, before, after, [steps(1)[0], silent, silent])
    curves = night_report(bare.store, NIGHT).curves
    assert curves == {"reward in training": [(1, 0.1)], "success in training": [(1, 0.05)]}


def test_the_first_line_says_what_became_of_the_night(
    experiment: Experiment, ledger: NightLedger
) -> None:
    def first() -> str:
        return page_of(night_report(experiment.store, NIGHT)).partition("\n")[0]

    assert first() == f"# {NIGHT} of tiny: its policy became the champion"
    ledger.append(NIGHT, "demoted", "A person demoted it.")
    assert first() == f"# {NIGHT} of tiny: its policy was the champion and was demoted"


def test_there_is_no_report_of_a_run_that_was_not_judged(experiment: Experiment) -> None:
    for name in ("nightly-2026-01-01", "demo"):
        with pytest.raises(ValueError, match=f"'{name}' .* is no night that was finished and judg"):
            night_report(experiment.store, name)
        with opened(experiment, name):
            pass
        with pytest.raises(ValueError, match="agentfly nights EXPERIMENT"):
            night_report(experiment.store, name)


def test_without_its_dataset_the_report_that_was_written_before_is_named(
    experiment: Experiment, ledger: NightLedger
) -> None:
    experiment.store.remove(StageKeys(experiment.settings).prepare().uri)
    with pytest.raises(ValueError, match=rf"The dataset .* before is runs/{NIGHT}/report\.md"):
        night_report(experiment.store, NIGHT)
