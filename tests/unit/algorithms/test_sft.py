"""Masked supervised fine-tuning, on demonstrations and on one's own successes."""

from dataclasses import replace

import pytest
import torch

from agentfly_core.algorithms.rft import RFT
from agentfly_core.algorithms.sft import SFT
from agentfly_core.rl.batch import pack
from agentfly_core.rl.interface import Outputs
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.generated_trajectories import earned


def test_the_loss_is_the_mean_surprise_at_replies():
    batch = pack(
        [
            trajectory(turn([1, 2], {3: 0.0, 4: 0.0}), turn([5], {6: 0.0})),
            trajectory(turn([1], {9: 0.0})),
        ]
    )
    batch = replace(batch, advantages=batch.sampled.float())
    batch = replace(batch, weight=SFT().weights(batch))
    #                          given    reply       tool  reply
    logprobs = torch.tensor(
        [[0.0, 0.0, -1.0, -2.0, 0.0, -3.0], [0.0, -6.0, 0.0, 0.0, 0.0, 0.0]], requires_grad=True
    )
    loss = (
        SFT()
        .loss(Outputs(logprobs, torch.zeros_like(logprobs), torch.zeros_like(logprobs)), batch)
        .total
    )
    loss.backward()
    assert loss.item() == pytest.approx((1 + 2 + 3 + 6) / 4)
    assert logprobs.grad.tolist() == [[0, 0, -0.25, -0.25, 0, -0.25], [0, -0.25, 0, 0, 0, 0]]


def test_every_demonstrated_token_is_worth_learning():
    demonstrations = [trajectory(turn([1, 2], {3: 0.0}))]
    batch = pack(demonstrations)
    assert SFT().estimate_advantages(earned(demonstrations, [0.0]), batch).advantages.tolist() == [
        [0, 0, 1]
    ]


def test_the_mean_over_successes_ignores_failures():
    episodes = [
        trajectory(turn([1], {3: 0.0, 4: 0.0})),
        trajectory(turn([1], {3: 0.0})),
        trajectory(turn([1], {3: 0.0})),
    ]
    batch = pack(episodes)
    batch = replace(
        batch,
        advantages=RFT().estimate_advantages(earned(episodes, [1.0, 0.0, 0.0]), batch).advantages,
    )
    assert RFT().weights(batch).tolist() == [[0, 0.5, 0.5], [0, 0, 0], [0, 0, 0]]
