"""Which problems of each task a step plays."""

from collections import Counter
from itertools import chain

import pytest

from agentfly_core.config.experiment import Night, OrderPosition
from agentfly_core.records.problem_schedule import night_after
from agentfly_core.records.trajectory import Problem, of_task
from tests.support.mixtures import BUYING, settings_with
from tests.support.problems import schedule_of

SIZES = {"sums": 12, "shop": 6}


def rows(rules, sampling_round):
    """Rows of the sums, 0 to 11, and of the shop, 12 to 17."""
    drawn = schedule_of(rules).rows(sampling_round, SIZES)
    return [row for row in drawn if row < 12], [row for row in drawn if row >= 12]


def test_each_step_plays_the_quota_of_each_task():
    played = [
        rows(settings_with(), schedule_of(settings_with()).first_round(step, False))
        for step in range(1, 13)
    ]
    assert {(len(sums), len(shop)) for sums, shop in played} == {(2, 1)}
    sums = [*chain(*(of_task for of_task, _ in played))]
    shop = [*chain(*(of_task for _, of_task in played))]
    assert sorted(sums[:12]) == [*range(12)] == sorted(sums[12:])
    assert sums[:12] != sums[12:]
    assert sorted(shop[:6]) == [*range(12, 18)] == sorted(shop[6:])


def test_each_task_is_passed_in_an_order_of_its_own():
    rules = settings_with(shop={**BUYING, "weight": 2})
    dealt = schedule_of(rules).rows(
        schedule_of(rules).first_round(1, False), {"sums": 100, "shop": 100}
    )
    (sums, shop) = dealt[:2], [row - 100 for row in dealt[2:]]
    assert sums[:1] != shop[:1]


def test_a_refill_draws_missing_problems_from_the_same_task():
    rules = settings_with(rollout={"problems": 3, "group_size": 2, "shard": 4, "refills": 1})
    first = schedule_of(rules).first_round(1, False)
    lacking = schedule_of(rules).missing({"sums": 2})  # the one of the shop taught nothing
    assert lacking == {"sums": 0, "shop": 1}
    more = schedule_of(rules).next_round(first, lacking)
    (sums, shop), (no_sums, another) = rows(rules, first), rows(rules, more)
    assert (len(sums), len(shop), no_sums, len(another)) == (2, 1, [], 1)
    assert shop != another
    assert (more.tasks["shop"], more.shards) == (range(1, 2), range(2, 3))


WINDOW = {"problems": 3, "group_size": 2, "shard": 4, "curriculum": {"window": 2}}


def played(rules, step, outcomes):
    """The problems that a step plays of twelve sums and six of the shop."""
    sampling_round = schedule_of(rules).first_round(step, False, {}, outcomes)
    dealt = schedule_of(rules).rows(sampling_round, SIZES)
    problems = [
        of_task(Problem(str(r), "?", {"kind": r % 2}), "sums" if r < 12 else "shop") for r in dealt
    ]
    assert len(problems) == 2 * 3, "the window is twice the quota of each task"
    return [problem.id for problem in schedule_of(rules).chosen(sampling_round, problems)]


def test_a_curriculum_draws_from_a_window_of_the_pass():
    rules = settings_with(rollout=WINDOW)
    first = played(rules, 1, {})
    assert [name.partition("/")[0] for name in first] == ["sums", "sums", "shop"]
    assert played(rules, 1, {}) == first
    assert not set(first) & set(played(rules, 2, {})), "the next step has the next window"


def test_a_curriculum_prefers_half_solved_problems():
    rules = settings_with(rollout={**WINDOW, "curriculum": {"window": 2, "by": "kind"}})
    outcomes = {"sums/0": (998, 998), "sums/1": (499, 998)}  # 1 in 1000 fails, and one half
    drawn = Counter(
        int(name.partition("/")[2]) % 2
        for step in range(1, 201)
        for name in played(rules, step, outcomes)
        if name.startswith("sums")
    )
    # weights of 0.011 and 0.26: an even sum is drawn where its window has fewer than two odd ones
    assert drawn[1] > 3 * drawn[0]


def test_a_problem_without_the_fact_of_the_curriculum_is_refused():
    rules = settings_with(rollout={**WINDOW, "curriculum": {"by": "level"}})
    with pytest.raises(ValueError, match=r"'sums/1' .*'level'.* kind"):
        schedule_of(rules).kind_of(of_task(Problem("1", "?", {"kind": 1}), "sums"))


def test_nights_finish_the_pass_of_a_task_before_repeating() -> None:
    night, sums, shop = Night(number=1), list[int](), list[int]()
    for _ in range(6):  # nights of 2 steps of 2 sums and 1 wish: 24 sums of 12, 12 wishes of 6
        rules = settings_with(night=night.model_dump())
        for before in ({}, {"sums": 2, "shop": 1}):
            some, more = rows(rules, schedule_of(rules).first_round(1, False, before))
            sums, shop = sums + some, shop + more
        night = night_after(night, {"sums": 4, "shop": 2}, SIZES)
    assert sorted(sums[:12]) == [*range(12)] == sorted(sums[12:])
    assert sorted(shop[:6]) == [*range(12, 18)] == sorted(shop[6:])
    assert (sums[:12], shop[:6]) != (sums[12:], shop[6:]), "each epoch has an order of its own"
    assert night == Night(
        number=7, tasks={"sums": OrderPosition(epoch=2), "shop": OrderPosition(epoch=2)}
    )


def test_each_task_continues_after_its_own_problems() -> None:
    night = night_after(Night(number=1), {"sums": 9, "shop": 7}, SIZES)
    assert night.tasks == {
        "sums": OrderPosition(problem=9),
        "shop": OrderPosition(epoch=1, problem=1),
    }
    assert (night.of("sums").problem, night.of("shop").epoch) == (9, 1)


def test_another_start_in_a_task_is_another_rollout() -> None:
    begun = [settings_with(night={"number": 2, "tasks": {"shop": {"problem": n}}}) for n in (0, 1)]
    assert begun[0].digest != begun[1].digest
    before = {"sums": 2, "shop": 1}
    schedule = schedule_of(begun[0])
    drawn = schedule.first_round(2, False, before).drawn(schedule)
    assert drawn == [False, "sums", 0, 2, 2, "shop", 0, 1, 1]
