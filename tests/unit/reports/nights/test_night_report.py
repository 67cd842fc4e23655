"""The report of a night is computed from the store."""

from dataclasses import replace
from pathlib import Path

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.reference import RunPolicy
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.records.trajectory import Unscored
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightLedger
from agentfly_core.reports.nights.night_report import night_page
from agentfly_core.runs.run import opened
from agentfly_core.store.store import Store
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
            "rollout/reward": number / 10,
            "rollout/success": number / 20,
            "rollout/avg_sampled_tokens": 12.5,
        }
        for number in range(1, count + 1)
    ]


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    """An experiment of three steps."""
    settings = {
        "model": "nano:calculator",
        "data": {
            "use": "tests.support.problems:clean",
            "train": 8,
            "validation": 4,
            "test": TESTS,
        },
        "rewards": {"agentfly_core.rewards.exact:exact": 1.0},
        "rollout": {"shard": 64},
        "promotion": {"unscored": None},
        "steps": 3,
    }
    return Experiment.of(
        "tiny", Settings.model_validate(settings), {}, Site(), Store.at(str(tmp_path), tmp_path)
    )


@pytest.fixture
def ledger(experiment: Experiment) -> NightLedger:
    return played_night(experiment, NIGHT, before, after, steps(3))


def page(experiment: Experiment) -> str:
    return night_page(experiment.store, NIGHT)


def row(experiment: Experiment, first: str) -> list[str]:
    """Return the cells of the table row that begins with this cell."""
    (line,) = (line for line in page(experiment).splitlines() if line.startswith(f"| {first} |"))
    return line.strip("| ").split(" | ")[1:]


def episodes(experiment: Experiment) -> list[str]:
    """Return the title of each shown episode."""
    return [line[4:] for line in page(experiment).splitlines() if line.startswith("### ")]


def test_success_before_and_after_is_reported(experiment: Experiment, ledger: NightLedger) -> None:
    sentence = "Success on the test problems was 27.5% before the night and is 74.4% after it."
    assert sentence in page(experiment)
    assert f"The champion was run:{NIGHT}@0." in page(experiment)


def test_a_report_does_not_change_over_time(experiment: Experiment, ledger: NightLedger) -> None:
    elsewhere = Store.at(experiment.store.uri, Path("unused"))
    assert page(experiment) == night_page(elsewhere, NIGHT)


def test_the_largest_changes_are_shown(experiment: Experiment, ledger: NightLedger) -> None:
    gains, losses = episodes(experiment)[:3], episodes(experiment)[3:]
    assert all(title.endswith("reward 0 → 1") for title in gains)
    assert losses == ["c-039: reward 1 → 0"]


def test_a_report_has_hours_tokens_and_cost(experiment: Experiment, ledger: NightLedger) -> None:
    store, record = experiment.store, experiment.store.read_json(RunLayout(NIGHT).record)
    priced = {**record, "site": {**record["site"], "price_per_hour": 30.0}}
    store.write_json(RunLayout(NIGHT).record, priced)
    assert row(experiment, "steps") == ["3 of 3"]
    assert row(experiment, "tokens sampled to train on") == [f"{3 * 8 * 12.5:.0f}"]
    assert row(experiment, "hours of all stages") == ["0.08"]  # 92 s a step
    assert row(experiment, "cost") == ["2.30 (30 an hour)"]


def test_a_later_champion_is_compared_and_shown(
    experiment: Experiment, ledger: NightLedger
) -> None:
    store, data = (
        experiment.store,
        experiment.store.artifact(StageKeys(experiment.settings).prepare().uri),
    )
    policy = store.artifact(RunLayout(NIGHT).step(2).policy)
    evaluated(experiment, policy, data, "test", lambda number: ("other", 1.0))
    judged = ledger.read().entries[-1].details
    assert isinstance(judged, Judgement)
    other = Champion(RunPolicy("nightly-2026-11-19", 2), policy)
    ledger.append(NIGHT, "kept", "", details=replace(judged, champion=other))
    assert [title.partition(": ")[2] for title in episodes(experiment)] == ["reward 1 → 0"] * 3
    assert "The champion was run:nightly-2026-11-19@2." in page(experiment)


def test_a_night_without_a_price_has_no_cost(experiment: Experiment, ledger: NightLedger) -> None:
    assert "cost" not in page(experiment)


def test_a_night_stopped_by_its_hours_has_its_planned_steps(
    experiment: Experiment, ledger: NightLedger
) -> None:
    with opened(experiment, NIGHT) as run:
        run.ending_at(2)
    assert row(experiment, "steps") == ["2 of 3"]


def test_health_signs_are_listed_with_their_steps(experiment: Experiment) -> None:
    quiet, odd = {"train/skipped_steps": 0.0}, {"train/skipped_steps": 2.0}
    played = [{**each, **more} for each, more in zip(steps(3), (odd, quiet, odd), strict=True)]
    played_night(experiment, NIGHT, before, after, played)
    assert row(experiment, "skipped_steps") == ["1, 3"]


def test_the_first_line_has_the_outcome_of_the_night(
    experiment: Experiment, ledger: NightLedger
) -> None:
    def first() -> str:
        return page(experiment).partition("\n")[0]

    assert first() == f"# {NIGHT} of tiny: promoted"
    ledger.append(NIGHT, "demoted", "A person demoted it.")
    assert first() == f"# {NIGHT} of tiny: demoted"


def test_a_run_that_was_not_judged_has_no_report(experiment: Experiment) -> None:
    for name in ("nightly-2026-01-01", "demo"):
        with pytest.raises(ValueError, match=f"'{name}', expected a finished"):
            night_page(experiment.store, name)
        with opened(experiment, name):
            pass
        with pytest.raises(ValueError, match="agentfly nights EXPERIMENT"):
            night_page(experiment.store, name)


def test_a_night_without_its_dataset_has_no_new_report(
    experiment: Experiment, ledger: NightLedger
) -> None:
    uri = StageKeys(experiment.settings).prepare().uri
    experiment.store.remove(uri)
    with pytest.raises(FileNotFoundError, match=uri):
        night_page(experiment.store, NIGHT)
