"""Learning-rate schedules by step."""

import pytest
import torch
from transformers import get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup

from agentfly_core.config.experiment import Update
from agentfly_core.pipeline.stages.policy_update import learning_rate


def rates(steps, **settings):
    update = Update(learning_rate=8.0, **settings)
    return [learning_rate(update, step, steps) for step in range(1, steps + 1)]


def test_the_rate_is_constant_by_default():
    assert rates(3) == [8.0, 8.0, 8.0]


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
def test_the_rate_rises_over_the_warmup_steps(schedule):
    actual = rates(9, lr_scheduler_type=schedule, warmup_steps=3)
    assert actual[:4] == [2.0, 4.0, 6.0, 8.0]


def test_a_linear_rate_falls_by_equal_parts():
    assert rates(4, lr_scheduler_type="linear") == [8.0, 6.0, 4.0, 2.0]


def test_a_cosine_rate_is_half_at_the_middle():
    actual = rates(4, lr_scheduler_type="cosine")
    assert actual == pytest.approx([8.0, 6.828427, 4.0, 1.171573])


@pytest.mark.parametrize(
    ("name", "theirs"),
    [("linear", get_linear_schedule_with_warmup), ("cosine", get_cosine_schedule_with_warmup)],
)
def test_after_the_warmup_the_rates_are_those_of_transformers(name, theirs):
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=8.0)
    schedule, expected = theirs(optimizer, num_warmup_steps=2, num_training_steps=9), []
    for _ in range(9):
        expected += schedule.get_last_lr()
        optimizer.step()
        schedule.step()
    assert rates(9, lr_scheduler_type=name, warmup_steps=2)[2:] == pytest.approx(expected[2:])


def test_a_fork_continues_at_the_rate_of_its_step():
    update = Update(learning_rate=8.0, lr_scheduler_type="linear")
    assert learning_rate(update, 3, 4) == 4.0
    assert learning_rate(update, 3, 8) == 6.0
