"""Which problems a step plays, and in which shards."""

from itertools import chain

import pytest

from agentfly_core.config.experiment import Night, OrderPosition, Settings
from agentfly_core.records.problem_schedule import (
    SamplingRound,
    epoch_order,
    night_after,
)
from agentfly_core.records.trajectory import Problem
from tests.support.problems import schedule_of

PROBLEMS = [Problem(f"p{i}", "?") for i in range(9)]


def settings_with(**rollout: int) -> Settings:
    data = {"use": "my:data", "train": 9, "test": 1}
    rewards = {"agentfly_core.rewards.exact:exact": 1.0}
    settings = {"problems": 2, "group_size": 4, "shard": 3, **rollout}
    return Settings(model="m", data=data, rewards=rewards, steps=1, rollout=settings)


def problems_of(
    rules: Settings, sampling_round: SamplingRound, problems: list[Problem]
) -> list[Problem]:
    rows = schedule_of(rules).rows(sampling_round, {"single": len(problems)})
    return [problems[row] for row in rows]


def ids(problems: list[Problem]) -> list[str]:
    return [problem.id for problem in problems]


def test_a_pass_deals_every_problem_once_in_its_own_order() -> None:
    of_steps = [
        ids(
            problems_of(
                settings_with(),
                schedule_of(settings_with()).first_round(step, False),
                PROBLEMS,
            )
        )
        for step in range(1, 9)
    ]
    first, second = [*chain(*of_steps[:4])], [*chain(*of_steps[4:])]
    assert len(set(first)) == 8 == len(set(second))
    assert first != second


def test_dealt_problems_depend_on_the_seed_alone() -> None:
    other = settings_with().model_copy(update={"seed": 1})
    deals = [
        problems_of(rules, schedule_of(rules).first_round(3, False), PROBLEMS)
        for rules in (settings_with(), settings_with(), other)
    ]
    assert deals[0] == deals[1] != deals[2]


def test_a_refill_deals_further_problems_in_further_shards() -> None:
    rules = settings_with(refills=1)
    first = schedule_of(rules).first_round(1, False)
    more = schedule_of(rules).next_round(first, {"single": 1})
    assert (first.shards, more) == (
        range(0, 3),
        SamplingRound(1, {"single": range(2, 3)}, False, range(3, 5)),
    )  # 8 episodes, then 4, three a shard
    played = ids(problems_of(rules, first, PROBLEMS)) + ids(problems_of(rules, more, PROBLEMS))
    assert len(set(played)) == 3


def test_problems_of_refills_are_played_by_one_step_of_a_pass() -> None:
    rules = settings_with(refills=1)
    deals = [schedule_of(rules).first_round(step, False) for step in (1, 2)]
    everything = [
        ids(problems_of(rules, d, PROBLEMS))
        + ids(problems_of(rules, schedule_of(rules).next_round(d, {"single": 2}), PROBLEMS))
        for d in deals
    ]
    assert len(set(chain(*everything))) == 8


def test_a_greedy_baseline_is_one_more_episode_of_each_problem() -> None:
    assert schedule_of(settings_with()).first_round(1, True).shards == range(
        0, 4
    )  # 10 episodes, three a shard


def test_more_problems_a_step_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match=r"10 problems, .*training split .*9"):
        problems_of(
            settings_with(problems=5, refills=1),
            SamplingRound(1, {"single": range(5)}, False, range(1)),
            PROBLEMS,
        )


def test_nights_play_every_problem_once_an_epoch() -> None:
    night, played = Night(number=1), []
    for _ in range(9):  # nights of 2 steps of 2 problems: 36 problems, 4 epochs
        rules = settings_with().model_copy(update={"night": night})
        for step in (1, 2):
            played += ids(
                problems_of(
                    rules,
                    schedule_of(rules).first_round(step, False, {"single": (step - 1) * 2}),
                    PROBLEMS,
                )
            )
        night = night_after(night, {"single": 4}, {"single": len(PROBLEMS)})
    epochs = [played[start : start + 9] for start in range(0, 36, 9)]
    assert [len(set(epoch)) for epoch in epochs] == [9, 9, 9, 9]
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert night == Night(number=10, tasks={"single": OrderPosition(epoch=4)})


def test_a_step_of_up_to_half_the_problems_repeats_none() -> None:
    for size in (8, 9):
        order = [*chain(*(epoch_order(0, epoch, size, "single") for epoch in range(50)))]
        windows = [order[i : i + size // 2] for i in range(len(order) - size // 2)]
        assert all(len(set(window)) == size // 2 for window in windows)


def test_a_night_continues_after_problems_of_its_refills() -> None:
    night = Night(number=3, tasks={"single": OrderPosition(epoch=1, problem=2)})
    rules = settings_with(refills=1).model_copy(update={"night": night})
    first = schedule_of(rules).first_round(2, False, before={"single": 3})
    refilled = schedule_of(rules).next_round(first, {"single": 1})
    order = [PROBLEMS[i].id for i in epoch_order(rules.seed, 1, 9, "single")]
    assert ids(problems_of(rules, first, PROBLEMS)) == order[5:7]
    assert ids(problems_of(rules, refilled, PROBLEMS)) == order[7:8]


def test_a_night_step_of_over_half_the_problems_is_refused() -> None:
    rules = settings_with(problems=5).model_copy(update={"night": Night(number=1)})
    with pytest.raises(ValueError, match=r"needs 10 problems, .* has 9"):
        problems_of(rules, schedule_of(rules).first_round(1, False), PROBLEMS)
