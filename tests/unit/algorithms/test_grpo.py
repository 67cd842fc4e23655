"""Group relative policy optimisation."""

import math
from dataclasses import replace

import pytest
import torch

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.rl.batch import pack
from agentfly_core.rl.importance_sampling import TokenTIS
from agentfly_core.rl.interface import Outputs
from agentfly_core.rl.kl import LossKL
from agentfly_core.rl.policy_loss import Clip
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support.generated_trajectories import crowd, earned

REPLY = turn([1], {3: -1.0})
AGAIN = turn([1], {3: -1.0}, context=1)


def advantages(trajectories, rewards):
    batch = pack(trajectories)
    by_token = GRPO().estimate_advantages(earned(trajectories, rewards), batch).advantages
    return [by_token[batch.trajectory == i][0, 1].item() for i in range(len(trajectories))]


def test_one_success_of_four_has_the_advantage_1_5():
    assert advantages([trajectory(REPLY)] * 4, [1.0, 0.0, 0.0, 0.0]) == pytest.approx(
        [1.5, -0.5, -0.5, -0.5], abs=1e-4
    )


def test_statistics_count_trajectories_not_rows():
    folded = [
        trajectory(REPLY, *[AGAIN] * 9),
        trajectory(REPLY),
        trajectory(REPLY),
        trajectory(REPLY),
    ]
    assert advantages(folded, [1.0, 0.0, 0.0, 0.0])[0] == pytest.approx(1.5, abs=1e-4)


def test_all_rows_of_a_trajectory_share_its_advantage():
    trajectories = [trajectory(REPLY, AGAIN), trajectory(REPLY)]
    by_token = (
        GRPO().estimate_advantages(earned(trajectories, [1.0, 0.0]), pack(trajectories)).advantages
    )
    half = pytest.approx(math.sqrt(0.5), abs=1e-4)
    assert by_token.tolist() == [
        [0, half],
        [0, half],
        [0, pytest.approx(-math.sqrt(0.5), abs=1e-4)],
    ]


def test_equal_rewards_and_lone_trajectories_teach_nothing():
    assert advantages([trajectory(REPLY)] * 3, [0.1, 0.1, 0.1]) == [0.0, 0.0, 0.0]
    assert advantages([trajectory(REPLY)], [1.0]) == [0.0]


def test_each_group_is_measured_by_itself():
    trajectories = [trajectory(REPLY, group=name) for name in ("a", "b", "a", "b")]
    low = -math.sqrt(0.5)
    assert advantages(trajectories, [0.0, 10.0, 1.0, 30.0]) == pytest.approx(
        [low, low, -low, -low], abs=1e-4
    )


def test_a_trajectory_without_tokens_counts_in_its_group():
    trajectories = [trajectory(REPLY), trajectory(name="empty")]
    by_token = (
        GRPO().estimate_advantages(earned(trajectories, [1.0, 0.0]), pack(trajectories)).advantages
    )
    assert by_token[0, 1].item() == pytest.approx(math.sqrt(0.5), abs=1e-4)


def test_the_loss_is_that_of_a_reference_written_out_in_float64():
    batch, outputs = _random()
    algorithm = GRPO(
        policy_loss=Clip(low=0.1, high=0.3),
        kl=LossKL(weight=0.05, kind="k2"),
        correction=TokenTIS(cap=1.2),
    )
    expected = 0.0
    for row, t in batch.sampled.nonzero().tolist():
        now, old, rollout, reference, advantage = (
            float(x[row, t])
            for x in (
                outputs.logprobs,
                batch.old_logprobs,
                batch.rollout_logprobs,
                batch.reference_logprobs,
                batch.advantages,
            )
        )
        ratio = math.exp(now - old)
        policy = max(-advantage * ratio, -advantage * min(max(ratio, 0.9), 1.3))
        corrected = policy * min(math.exp(old - rollout), 1.2)
        expected += (corrected + 0.05 * (now - reference) ** 2 / 2) / int(batch.sampled.sum())
    assert algorithm.loss(outputs, batch).total.item() == pytest.approx(expected, rel=1e-5)


def test_the_share_of_tokens_beyond_the_cap_is_a_metric():
    batch, outputs = _random()
    beyond = (batch.old_logprobs - batch.rollout_logprobs)[batch.sampled] > math.log(1.2)
    capped = (
        GRPO(correction=TokenTIS(cap=1.2)).loss(outputs, batch).metrics["mismatch/masked_share"]
    )
    assert capped[batch.sampled].tolist() == beyond.float().tolist()


def test_only_a_kl_penalty_needs_a_reference():
    assert GRPO().needs.reference is None
    assert GRPO(kl=LossKL()).needs.reference == "start"


def test_rewards_far_from_zero_keep_their_differences():
    assert advantages([trajectory(REPLY)] * 2, [1e9, 1e9 + 1])[1] == pytest.approx(
        math.sqrt(0.5), abs=1e-4
    )


def _random():
    torch.manual_seed(0)
    batch = pack(crowd(2, 3))

    def near(logprobs):
        return (logprobs + 0.5 * torch.randn(logprobs.shape)) * batch.sampled

    advantages = torch.randn(batch.sampled.shape) * batch.sampled
    batch = replace(
        batch,
        old_logprobs=near(batch.rollout_logprobs),
        reference_logprobs=near(batch.rollout_logprobs),
    )
    now = near(batch.rollout_logprobs)
    return replace(batch, advantages=advantages, weight=GRPO().weights(batch)), Outputs(
        now, torch.zeros_like(now), torch.zeros_like(now)
    )
