"""The parts that algorithms are made of, and the sum that does not depend on how it is split."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl.batch import micro_batches, pack
from agentfly_core.rl.interface import Outputs, mismatch
from agentfly_core.rl.policy_loss import Clip
from agentfly_core.training.policy import load_policy
from tests.support.generated_trajectories import crowd, earned


def test_mismatch_measures_sampler_against_learner():
    metrics = mismatch(
        torch.tensor([-1.0, -1.0 + math.log(2)]), torch.tensor([-1.0, -1.0])
    )  # weights 1 and 2
    assert metrics["mismatch/max_abs_weight_error"] == pytest.approx(1.0)
    assert metrics["mismatch/max_abs_dlogp"] == pytest.approx(math.log(2))
    assert metrics["mismatch/k3"] == pytest.approx((0 + 2 - 1 - math.log(2)) / 2)
    assert metrics["mismatch/ess"] == pytest.approx((1 + 2) ** 2 / (1 + 4) / 2)


def test_a_sampler_that_agrees_has_no_mismatch():
    agreed = torch.tensor([-1.0, -0.25])
    assert mismatch(agreed, agreed) == {
        "mismatch/k3": 0.0,
        "mismatch/max_abs_dlogp": 0.0,
        "mismatch/max_abs_weight_error": 0.0,
        "mismatch/ess": 1.0,
    }


def test_of_no_tokens_there_is_no_mismatch():
    assert mismatch(torch.tensor([]), torch.tensor([])) == {}


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(
    budget=st.integers(8, 120),
    ranks=st.integers(1, 3),
    order=st.permutations(range(12)),
)
def test_the_gradient_ignores_split_ranks_and_order_of_rows(nano, budget, ranks, order):
    policy = load_policy(str(nano), "float32")
    whole, split = _prepared(range(12)), _prepared(order)
    expected = _gradient(policy, whole, [torch.arange(12)])
    parts = [
        rows for share in micro_batches(split.lengths, budget, ranks) for rows in share if len(rows)
    ]
    gradient = _gradient(policy, split, parts)
    assert (gradient - expected).norm() < 1e-5 * expected.norm()


def _prepared(order):
    trajectories = [crowd(3, 4)[i] for i in order]
    algorithm, batch = GRPO(), pack(trajectories)
    estimate = algorithm.estimate_advantages(
        earned(trajectories, [t.id.endswith(("1", "2")) for t in trajectories]), batch
    )
    return replace(batch, advantages=estimate.advantages, weight=algorithm.weights(batch))


def _gradient(policy, batch, parts):
    policy.zero_grad()
    for rows in parts:
        micro = batch.select(rows)
        outputs = Outputs(*policy(micro.tokens, micro.sampled, 1.0))
        GRPO(policy_loss=Clip(high=5.0, low=1.0)).loss(outputs, micro).total.backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])
