"""Which problems a step plays, and in which shards."""

from __future__ import annotations

from itertools import chain

import pytest

from agentfly_core.config.experiment import Science
from agentfly_core.records.schedule import SamplingRound, first_round, next_round, problems_of
from agentfly_core.records.trajectory import Problem

PROBLEMS = [Problem(f"p{i}", "?") for i in range(9)]


def science(**rollout: int) -> Science:
    data = {"use": "my:data", "train": 9, "test": 1}
    rewards = {"agentfly_core.rewards.exact:exact": 1.0}
    settings = {"problems": 2, "group_size": 4, "shard": 3, **rollout}
    return Science(model="m", data=data, rewards=rewards, steps=1, rollout=settings)


def ids(found: list[Problem]) -> list[str]:
    return [problem.id for problem in found]


def test_a_pass_deals_every_problem_once_and_the_next_pass_in_another_order() -> None:
    of_steps = [
        ids(problems_of(science(), first_round(science(), step, False), PROBLEMS))
        for step in range(1, 9)
    ]
    first, second = [*chain(*of_steps[:4])], [*chain(*of_steps[4:])]
    assert len(set(first)) == 8 == len(set(second))
    assert first != second


def test_what_is_dealt_depends_on_the_seed_alone() -> None:
    other = science().model_copy(update={"seed": 1})
    deals = [
        problems_of(rules, first_round(rules, 3, False), PROBLEMS)
        for rules in (science(), science(), other)
    ]
    assert deals[0] == deals[1] != deals[2]


def test_a_refill_deals_further_problems_of_the_step_in_further_shards() -> None:
    rules = science(refills=1)
    first = first_round(rules, 1, False)
    more = next_round(rules, first, 1)
    assert (first.shards, more) == (
        range(0, 3),
        SamplingRound(1, 2, 1, False, range(3, 5)),
    )  # 8 episodes, then 4, three a shard
    played = ids(problems_of(rules, first, PROBLEMS)) + ids(problems_of(rules, more, PROBLEMS))
    assert len(set(played)) == 3


def test_no_problem_of_a_refill_is_played_by_another_step_of_the_pass() -> None:
    rules = science(refills=1)
    deals = [first_round(rules, step, False) for step in (1, 2)]
    everything = [
        ids(problems_of(rules, d, PROBLEMS))
        + ids(problems_of(rules, next_round(rules, d, 2), PROBLEMS))
        for d in deals
    ]
    assert len(set(chain(*everything))) == 8


def test_a_greedy_baseline_is_one_more_episode_of_each_problem() -> None:
    assert first_round(science(), 1, True).shards == range(0, 4)  # 10 episodes, three a shard


def test_more_problems_a_step_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="needs 10 problems, the training split has 9"):
        problems_of(
            science(problems=5, refills=1), SamplingRound(1, 0, 5, False, range(1)), PROBLEMS
        )
