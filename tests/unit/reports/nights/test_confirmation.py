"""The second comparison uses problems that no comparison has used."""

from typing import Any

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.promotion import Promotion
from agentfly_core.records.dataset import build
from agentfly_core.reports.nights.held_out import HeldOut
from agentfly_core.reports.nights.promotion_gate import (
    BothHeldOut,
    Way,
    confirmed_verdict,
    looks,
    way,
)
from tests.support.mixtures import SUMS
from tests.support.mixtures import settings_with as mixture

GENERATED = "agentfly_core.datasets.arithmetic:arithmetic"
FILES = "agentfly_core.datasets.files:files"


def settings(use: str = GENERATED, **settings: Any) -> Settings:
    data = {"use": use, "train": 100, "validation": 10, "test": 200}
    data |= {"train_file": "math.jsonl"} if use == FILES else {}
    rewards = {"agentfly_core.rewards.exact:exact": 1.0}
    values = {"model": "nano:calculator", "data": data, "rewards": rewards, "steps": 1}
    return Settings.model_validate({**values, "promotion": settings})


def held(count: int) -> HeldOut:
    return HeldOut("77b0", {f"p{number}": {"goal": float(number % 2)} for number in range(count)})


def ids(settings: Settings) -> set[str]:
    built = build(settings.data, settings.data.seed or 0)
    return {getattr(problem, "id", "") for problem in built["test"]}


def confirmation_of(settings: Settings) -> Way:
    datasets = [one.data.use for one in settings.each.values()]
    return way(settings.promotion.confirmation, datasets)


def test_generated_data_have_fresh_problems_and_files_a_split() -> None:
    assert (confirmation_of(settings()), confirmation_of(settings(FILES))) == ("fresh", "split")
    assert confirmation_of(settings("tests.support.problems:clean")) == "split"


def test_an_experiment_may_set_its_confirmation() -> None:
    assert confirmation_of(settings(FILES, confirmation="none")) == "none"
    assert confirmation_of(settings(confirmation={"use": "split", "share": 0.5})) == "split"


def test_a_split_is_fixed_and_disjoint_from_the_first_problems() -> None:
    first, second = looks("split", 0.3, held(2000))
    assert first.by_problem.keys().isdisjoint(second.by_problem)
    assert first.by_problem.keys() | second.by_problem.keys() == held(2000).by_problem.keys()
    assert 0.25 < len(second.by_problem) / 2000 < 0.35
    fewer = looks("split", 0.3, held(1500))[1]
    assert fewer.by_problem.keys() <= second.by_problem.keys()


def test_with_fresh_problems_the_first_look_has_all_problems() -> None:
    first, second = looks("fresh", 0.3, held(200))
    assert (first, second.by_problem) == (held(200), {})


def test_each_confirmation_has_its_own_fixed_fresh_problems() -> None:
    one, other = settings().with_fresh_problems(0), settings().with_fresh_problems(1)
    assert ids(one) == ids(settings().with_fresh_problems(0)) != ids(other)
    assert (len(ids(one)), one.data.test) == (400, 400)
    assert one.data.seed != other.data.seed
    assert one.model_copy(update={"data": settings().data}) == settings()


def test_a_generated_mixture_has_fresh_problems_of_each_task() -> None:
    fresh = mixture().with_fresh_problems(0)
    assert confirmation_of(mixture()) == "fresh"
    assert [one.data.test for one in fresh.each.values()] == [8, 4]
    assert (fresh.data.test, len(ids(fresh))) == (12, 12)
    assert ids(fresh).isdisjoint(ids(mixture()))
    assert ids(fresh) != ids(mixture().with_fresh_problems(1))
    files = {"use": FILES, "train": 12, "test": 4, "train_file": "math.jsonl"}
    assert confirmation_of(mixture({**SUMS, "data": files})) == "split"


def test_only_the_data_seed_selects_the_fresh_problems() -> None:
    def with_seeds(seed: int, of_data: int | None) -> Settings:
        data = settings().data.model_copy(update={"seed": of_data})
        return settings().model_copy(update={"seed": seed, "data": data})

    fresh = with_seeds(3, None).with_fresh_problems(0).data.seed
    assert fresh == with_seeds(8, 3).with_fresh_problems(0).data.seed
    assert fresh != with_seeds(3, 8).with_fresh_problems(0).data.seed


@pytest.mark.parametrize(("how", "level"), [("fresh", 0.05), ("split", 0.2)])
def test_a_split_has_a_lower_level_than_fresh_problems(how: Way, level: float) -> None:
    better = HeldOut("77b0", {name: {"goal": 1.0} for name in held(200).by_problem})
    settings = Promotion(tokens=None, unreadable_calls=None)
    both = (held(200), better)
    verdict = confirmed_verdict(how, both, {}, lambda: both, settings)
    assert (verdict.promoted, verdict.comparisons[-1].name) == (True, "confirmation")
    assert verdict.comparisons[-1].level == level


def test_a_challenger_that_does_not_win_uses_no_fresh_problems() -> None:
    settings = Promotion(tokens=None, unreadable_calls=None)
    equal = (held(200), held(200))

    def unused() -> BothHeldOut:
        raise AssertionError("fresh problems were played")

    verdict = confirmed_verdict("fresh", equal, {}, unused, settings)
    assert "confirmation" not in [one.name for one in verdict.comparisons]


def test_a_guard_dataset_is_played_with_the_same_settings() -> None:
    hard = {"use": FILES, "train_file": "hard.jsonl", "test": 500, "margin": 0.1}
    guarded = settings(datasets={"hard": hard})
    guard = guarded.on(guarded.promotion.datasets["hard"])
    assert guard.data.settings == {"train_file": "hard.jsonl"}
    assert (guard.data.train, guard.data.validation, guard.data.test) == (1, 0, 500)
    assert guard.model_copy(update={"data": settings().data}) == guarded
