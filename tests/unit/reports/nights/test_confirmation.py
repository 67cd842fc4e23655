"""The second look: problems that no comparison has used."""

from __future__ import annotations

from typing import Any

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.config.promotion import Promotion
from agentfly_core.records.dataset import build
from agentfly_core.reports.nights.confirmation import (
    Way,
    confirmed_verdict,
    looks,
    unseen,
    way,
)
from agentfly_core.reports.nights.held_out import HeldOut
from agentfly_core.reports.nights.promotion import BothHeldOut
from tests.support.mixtures import SUMS
from tests.support.mixtures import settings_with as mixture

GENERATED = "agentfly_core.datasets.arithmetic:arithmetic"
FILES = "agentfly_core.datasets.files:files"


def settings(use: str = GENERATED, **settings: Any) -> Settings:
    data = {"use": use, "train": 100, "validation": 10, "test": 200}
    data |= {"train_file": "math.jsonl"} if use == FILES else {}
    rewards = {"agentfly_core.rewards.exact:exact": 1.0}
    said = {"model": "nano:calculator", "data": data, "rewards": rewards, "steps": 1}
    return Settings.model_validate({**said, "promotion": settings})


def held(count: int) -> HeldOut:
    return HeldOut("77b0", {f"p{number}": {"goal": float(number % 2)} for number in range(count)})


def ids(settings: Settings) -> set[str]:
    built = build(settings.data, settings.data.seed or 0)
    return {getattr(problem, "id", "") for problem in built["test"]}


def way_of(settings: Settings) -> Way:
    datasets = [one.data.use for one in settings.each.values()]
    return way(settings.promotion.confirmation, datasets)


def test_a_generated_dataset_has_fresh_problems_and_a_file_has_a_split() -> None:
    assert (way_of(settings()), way_of(settings(FILES))) == ("fresh", "split")
    assert way_of(settings("tests.support.problems:clean")) == "split"


def test_an_experiment_may_say_how_it_is_confirmed() -> None:
    assert way_of(settings(FILES, confirmation="none")) == "none"
    assert way_of(settings(confirmation={"use": "split", "share": 0.5})) == "split"


def test_a_split_shares_no_problem_with_the_first_look_and_stays_as_it_is() -> None:
    first, second = looks("split", 0.3, held(2000))
    assert first.by_problem.keys().isdisjoint(second.by_problem)
    assert first.by_problem.keys() | second.by_problem.keys() == held(2000).by_problem.keys()
    assert 0.25 < len(second.by_problem) / 2000 < 0.35
    fewer = looks("split", 0.3, held(1500))[1]
    assert fewer.by_problem.keys() <= second.by_problem.keys()


def test_where_problems_are_fresh_the_first_look_has_all_test_problems() -> None:
    first, second = looks("fresh", 0.3, held(200))
    assert (first, second.by_problem) == (held(200), {})


def test_each_confirmation_has_other_fresh_problems_and_always_the_same_ones() -> None:
    one, other = settings().with_fresh_problems(0), settings().with_fresh_problems(1)
    assert ids(one) == ids(settings().with_fresh_problems(0)) != ids(other)
    assert (len(ids(one)), one.data.test) == (400, 400)
    assert one.data.seed != other.data.seed
    assert one.model_copy(update={"data": settings().data}) == settings()


def test_a_mixture_has_fresh_problems_of_each_task_where_all_are_generated() -> None:
    fresh = mixture().with_fresh_problems(0)
    assert way_of(mixture()) == "fresh"
    assert [one.data.test for one in fresh.each.values()] == [8, 4]
    assert (fresh.data.test, len(ids(fresh))) == (12, 12)
    assert ids(fresh).isdisjoint(ids(mixture()))
    assert ids(fresh) != ids(mixture().with_fresh_problems(1))
    files = {"use": FILES, "train": 12, "test": 4, "train_file": "math.jsonl"}
    assert way_of(mixture({**SUMS, "data": files})) == "split"


def test_the_seed_of_the_data_alone_decides_which_fresh_problems_there_are() -> None:
    def with_seeds(seed: int, of_data: int | None) -> Settings:
        data = settings().data.model_copy(update={"seed": of_data})
        return settings().model_copy(update={"seed": seed, "data": data})

    fresh = with_seeds(3, None).with_fresh_problems(0).data.seed
    assert fresh == with_seeds(8, 3).with_fresh_problems(0).data.seed
    assert fresh != with_seeds(3, 8).with_fresh_problems(0).data.seed


def test_fresh_problems_that_the_experiment_has_do_not_count() -> None:
    assert unseen({"p0", "p1", "p2", "p3", "p4"}, {"p0", "p3", "another"}, []) == {"p1", "p2", "p4"}


TWENTY = {f"p{number}" for number in range(20)}


def test_fresh_problems_of_earlier_confirmations_do_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = unseen(TWENTY, {"p0"}, [{"p1", "another"}, {"p2", "p3"}])
    assert found == TWENTY - {"p0", "p1", "p2", "p3"}
    assert caplog.messages == []


def test_where_new_problems_run_out_those_used_longest_ago_come_again_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    found = unseen(TWENTY, set(), [{"p0"}, {"p1", "p2", "p3"}, {"p4", "p5"}, {"p6"}])
    assert found == TWENTY - {"p4", "p5", "p6"}
    assert "confirmations 1 to 2 may share theirs" in caplog.text


@pytest.mark.parametrize("own", [range(5), range(4)])
def test_a_generated_dataset_with_too_few_problems_of_other_ids_is_refused(own: range) -> None:
    fresh = {f"p{number}" for number in range(5)}
    with pytest.raises(ValueError, match=f"5 fresh problems have {5 - len(own)} ids"):
        unseen(fresh, {f"p{number}" for number in own}, [])


@pytest.mark.parametrize(("how", "level"), [("fresh", 0.05), ("split", 0.2)])
def test_a_split_is_confirmed_at_a_lower_level_than_fresh_problems(how: Way, level: float) -> None:
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


def test_a_dataset_of_ones_own_is_played_like_the_experiments() -> None:
    hard = {"use": FILES, "train_file": "hard.jsonl", "test": 500, "margin": 0.1}
    guarded = settings(datasets={"hard": hard})
    found = guarded.on(guarded.promotion.datasets["hard"])
    assert found.data.settings == {"train_file": "hard.jsonl"}
    assert (found.data.train, found.data.validation, found.data.test) == (1, 0, 500)
    assert found.model_copy(update={"data": settings().data}) == guarded
