"""Advantages of a mixture: missing rewards, and normalisation by task."""

import math
from dataclasses import replace

import pytest
import torch

from agentfly_core.algorithms.gdpo import GDPO
from agentfly_core.records.trajectory import Problem, Scored, of_task
from agentfly_core.rl.batch import pack
from agentfly_core.rl.outcomes import outcomes
from agentfly_core.testing.trajectories import trajectory, turn
from agentfly_core.training.update import by_task

WEIGHTS = {"exact": 1.0, "format": 0.5, "bought": 100.0}
PLAYED = [
    trajectory(
        turn([1], {3: -1.0}), name=f"t{i}", group=task, problem=of_task(Problem("1", "?"), task)
    )
    for i, task in enumerate(["sums", "sums", "shop", "shop", "shop", "shop"])
]
EARNED = [
    *({"exact": exact, "format": 1.0} for exact in (1.0, 0.0)),
    *({"bought": bought} for bought in (0.0, 0.0, 1.0, 1.0)),
]
SCORES = [
    Scored(t.id, rewards, (), sum(WEIGHTS[name] * value for name, value in rewards.items()))
    for t, rewards in zip(PLAYED, EARNED, strict=True)
]
BATCH = pack(PLAYED)


def mixed(greedy=None):
    return outcomes(PLAYED, SCORES, greedy or {}, WEIGHTS, BATCH)


def test_a_reward_that_a_task_lacks_is_missing_and_no_zero():
    assert mixed().tasks == {"sums": (0, 1), "shop": (2, 3, 4, 5)}
    assert mixed().parts["exact"][:2].tolist() == [1.0, 0.0]
    assert all(map(math.isnan, mixed().parts["exact"][2:]))
    assert all(map(math.isnan, mixed().parts["bought"][:2]))


def test_gdpo_puts_each_task_on_its_own_scale():
    advantages = GDPO().estimate_advantages(mixed(), BATCH).advantages[BATCH.sampled]
    # (x - mean) / std over two tokens and over four: the weight of 100 does not dominate
    half, three = math.sqrt(1 / 2), math.sqrt(3 / 4)
    expected = [half, -half, -three, -three, three, three]
    assert advantages.tolist() == pytest.approx(expected, abs=1e-5)


def test_metrics_cover_each_task():
    advantages = torch.zeros(BATCH.sampled.shape)
    advantages[BATCH.sampled] = torch.tensor([3.0, -1.0, 0.0, 0.0, 1.0, 1.0])
    taught = replace(BATCH, advantages=advantages)
    assert by_task(mixed({"sums": 0.25}), taught) | {"task/shop/train/baseline": None} == {
        "task/sums/train/advantage": 1.0,
        "task/sums/train/advantage_size": 2.0,
        "task/sums/train/advantage_std": 2.0,
        "task/sums/train/baseline": 0.25,
        "task/shop/train/advantage": 0.5,
        "task/shop/train/advantage_size": 0.5,
        "task/shop/train/advantage_std": 0.5,
        "task/shop/train/baseline": None,
    }
