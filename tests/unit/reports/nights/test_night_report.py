"""The report of a night is computed from the store."""

from __future__ import annotations

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
from agentfly_core.reports.nights.night_report import night_page, page_text
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
            "rollout/reward": number / 10,
            "rollout/success": number / 20,
            "rollout/avg_sampled_tokens": 12.5,
        }
        for number in range(1, count + 1)
    ]


def experiment_with(folder: Path, validation: int) -> Experiment:
    """An experiment of three steps with its store in a folder."""
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


def page(experiment: Experiment) -> str:
    return page_text(night_page(experiment.store, NIGHT))


def row(experiment: Experiment, first: str) -> list[str]:
    """Return the cells of the table row that begins with this cell."""
    (line,) = (line for line in page(experiment).splitlines() if line.startswith(f"| {first} |"))
    return line.strip("| ").split(" | ")[1:]


def episodes(experiment: Experiment) -> list[tuple[str, str]]:
    """Return the kind and the problem of each shown episode."""
    titles = [line[4:] for line in page(experiment).splitlines() if line.startswith("### ")]
    return [(kind, problem) for kind, _, problem in (title.partition(": ") for title in titles)]


def test_success_rises_by_the_paired_difference_of_scores(
    experiment: Experiment, ledger: NightLedger
) -> None:
    # of the 39 problems without the lost one: 20 gained, 1 lost
    assert (
        "Success on the test problems was 27.5% before the night and is 74.4% after it: "
        "+48.7 points, 95 % interval +31.3 to +66.2."
    ) in page(experiment)
    assert row(experiment, "the night's first policy")[::2] == ["27.5%", "40"]
    assert row(experiment, "its last policy")[::2] == ["74.4%", "39"]
    assert f"The champion was run:{NIGHT}@0." in page(experiment)


def test_a_report_does_not_change_over_time(experiment: Experiment, ledger: NightLedger) -> None:
    elsewhere = Store.at(experiment.store.uri, Path("unused"))
    assert page(experiment) == page_text(night_page(elsewhere, NIGHT))


def test_a_link_follows_the_first_sentence(experiment: Experiment, ledger: NightLedger) -> None:
    sections = page_text(night_page(experiment.store, NIGHT), "[the run](http://x)").split("\n\n")
    assert sections[2] == "[the run](http://x)"
    assert "\n\n".join([*sections[:2], *sections[3:]]) == page(experiment)


def test_ten_episodes_are_shown_with_the_changed_ones_first(
    experiment: Experiment, ledger: NightLedger
) -> None:
    kinds = ["Changed for the better"] * 3 + ["Changed for the worse"]
    kinds += ["Best"] * 3 + ["Worst"] * 3
    assert [kind for kind, _ in episodes(experiment)] == kinds
    problems = [problem for _, problem in episodes(experiment)]
    assert len({*problems}) == 10 and "c-005" not in problems
    assert problems[3] == "c-039"
    assert "reward 1 → 0; exact 1 → 0" in page(experiment)


def test_a_report_has_attempts_hours_tokens_and_cost(
    experiment: Experiment, ledger: NightLedger
) -> None:
    store, record = experiment.store, experiment.store.read_json(RunLayout(NIGHT).record)
    priced = {**record, "site": {**record["site"], "price_per_hour": 30.0}}
    store.write_json(RunLayout(NIGHT).record, priced)
    assert row(experiment, "steps") == ["3"]
    assert row(experiment, "attempts") == ["1"]
    assert row(experiment, "tokens sampled to train on") == [f"{3 * 8 * 12.5:.0f}"]
    assert row(experiment, "hours at work") == ["0.05"]  # the last step ended 3 minutes later
    assert row(experiment, "cost") == ["1.50 (30 an hour)"]
    assert "rollout 180" in row(experiment, "seconds by stage")[0]


def test_the_hours_of_a_night_end_at_its_last_output(
    experiment: Experiment, ledger: NightLedger
) -> None:
    began = experiment.store.read_json("nights/tiny/000001.json")
    earlier = {**began, "time_ms": began["time_ms"] - 3_600_000}
    count = len(ledger.entries())
    experiment.store.write_json("nights/tiny/000001.json", earlier)
    for number in range(2, count + 1):
        file = f"nights/tiny/{number:06d}.json"
        entry = {**experiment.store.read_json(file), "before": digest(earlier)}
        experiment.store.write_json(file, entry)
        earlier = entry
    ledger.append(NIGHT, "began")  # the last step ended 3 minutes after this
    assert row(experiment, "attempts") == ["2"]
    assert row(experiment, "hours at work") == ["1.05"]


def test_a_later_champion_is_compared_and_shown(
    experiment: Experiment, ledger: NightLedger
) -> None:
    store, data = (
        experiment.store,
        experiment.store.artifact(StageKeys(experiment.settings).prepare().uri),
    )
    policy = store.artifact(RunLayout(NIGHT).step(2).policy)
    evaluated(experiment, policy, data, "test", lambda number: ("other", 1.0))
    judged = ledger.entries()[-1].details
    assert isinstance(judged, Judgement)
    other = Champion(RunPolicy("nightly-2026-11-19", 2), policy)
    ledger.append(NIGHT, "kept", "", details=replace(judged, champion=other))
    rates = ("the night's first policy", "its last policy", "the champion")
    assert [row(experiment, name)[0] for name in rates] == ["27.5%", "74.4%", "100.0%"]
    kinds = [kind for kind, _ in episodes(experiment)]
    assert kinds == [*["Changed for the worse"] * 3, *["Best"] * 3, *["Worst"] * 4]
    assert "The champion was run:nightly-2026-11-19@2." in page(experiment)


def test_a_night_without_a_price_has_no_cost(experiment: Experiment, ledger: NightLedger) -> None:
    assert "cost" not in page(experiment)


def test_a_night_stopped_by_its_hours_has_its_planned_steps(
    experiment: Experiment, ledger: NightLedger
) -> None:
    with opened(experiment, NIGHT) as run:
        run.ending_at(2)
    assert row(experiment, "steps") == ["2 of 3 (its hours were over)"]


def test_health_signs_are_listed_with_their_steps(experiment: Experiment) -> None:
    quiet, odd = {"train/skipped_steps": 0.0}, {"train/skipped_steps": 2.0}
    played = [{**each, **more} for each, more in zip(steps(3), (odd, quiet, odd), strict=True)]
    played_night(experiment, NIGHT, before, after, played)
    assert row(experiment, "skipped_steps") == ["1, 3", "train/skipped_steps is 2, above 0"]


def test_validated_steps_have_a_validation_curve(
    experiment: Experiment, ledger: NightLedger
) -> None:
    assert row(experiment, "reward in training") == ["0.100", "▁▅█", "0.300", "0.100", "0.300"]
    assert "success on validation" not in page(experiment)
    data = experiment.store.artifact(StageKeys(experiment.settings).prepare().uri)
    for number, solved in ((1, 1), (3, 3)):
        policy = experiment.store.artifact(RunLayout(NIGHT).step(number).policy)
        evaluated(experiment, policy, data, "validation", lambda i, n=solved: ("", float(i < n)))
    assert row(experiment, "success on validation")[::2] == ["0.250", "0.750", "0.750"]


def test_a_night_without_validation_has_the_other_curves(
    tmp_path: Path,
) -> None:
    bare = experiment_with(tmp_path, validation=0)
    silent = {"rollout/avg_sampled_tokens": 1.0}  # of a step without a reward
    played_night(bare, NIGHT, before, after, [steps(1)[0], silent, silent])
    assert row(bare, "reward in training") == ["0.100", "▁", "0.100", "0.100", "0.100"]
    assert row(bare, "success in training")[0] == "0.050"


def test_the_first_line_has_the_outcome_of_the_night(
    experiment: Experiment, ledger: NightLedger
) -> None:
    def first() -> str:
        return page(experiment).partition("\n")[0]

    assert first() == f"# {NIGHT} of tiny: its policy became the champion"
    ledger.append(NIGHT, "demoted", "A person demoted it.")
    assert first() == f"# {NIGHT} of tiny: its policy was the champion and was demoted"


def test_a_run_that_was_not_judged_has_no_report(experiment: Experiment) -> None:
    for name in ("nightly-2026-01-01", "demo"):
        with pytest.raises(ValueError, match=f"'{name}' .* finished and judged night"):
            night_page(experiment.store, name)
        with opened(experiment, name):
            pass
        with pytest.raises(ValueError, match="agentfly nights EXPERIMENT"):
            night_page(experiment.store, name)


def test_without_its_dataset_the_older_report_is_named(
    experiment: Experiment, ledger: NightLedger
) -> None:
    experiment.store.remove(StageKeys(experiment.settings).prepare().uri)
    with pytest.raises(ValueError, match=rf"The dataset .* before is runs/{NIGHT}/report\.md"):
        night_page(experiment.store, NIGHT)
