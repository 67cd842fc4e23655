"""A KL penalty with a weight that follows the measured KL."""

from dataclasses import replace

import pytest
import torch

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.algorithms.reinforce_pp import ReinforcePP
from agentfly_core.rl.batch import pack
from agentfly_core.rl.kl import AdaptiveKL, RewardKL
from agentfly_core.testing.trajectories import trajectory as played
from agentfly_core.testing.trajectories import turn
from tests.support.generated_trajectories import earned

ADAPTIVE = GRPO(kl=AdaptiveKL(weight=0.1, target=0.02, horizon=1000))


def measured(divergence, weight=0.1):
    return {
        "train/kl_reference": divergence,
        "train/kl_weight": weight,
        "train/trajectories": 100.0,
    }


@pytest.mark.parametrize(
    ("divergence", "weight"),
    [
        (0.02, 0.1),  # on target
        (0.022, 0.1 * (1 + 0.1 * 0.1)),  # 10 % above it
        (2.0, 0.1 * (1 + 0.2 * 0.1)),  # never faster than by 20 % in 1,000 trajectories
        (0.0, 0.1 * (1 - 0.2 * 0.1)),
    ],
)
def test_the_weight_grows_while_the_divergence_is_too_large(divergence, weight):
    assert ADAPTIVE.after(measured(divergence)).kl.weight == pytest.approx(weight)


def test_the_weight_continues_from_the_last_update():
    assert ADAPTIVE.after(measured(0.02, weight=0.7)).kl.weight == pytest.approx(0.7)
    assert ADAPTIVE.after({}) == ADAPTIVE


def test_an_update_without_tokens_keeps_the_weight():
    later = ADAPTIVE.after(measured(0.02, weight=0.7))
    nothing = pack([played()])
    measures = later.measures(earned([played()], [0.0]), nothing)
    assert measures == {"train/kl_weight": pytest.approx(0.7)}
    assert ADAPTIVE.after({**measures, "train/trajectories": 0.0}) == later


def test_a_fixed_weight_stays():
    assert GRPO(kl=RewardKL(weight=0.1)).after(measured(2.0)).kl.weight == 0.1


def test_the_penalty_costs_reward_token_by_token():
    trajectories = [
        played(turn([1], {3: -1.0, 4: -1.0}), name="far"),
        played(turn([1], {3: -1.0}), name="near"),
    ]
    batch = pack(trajectories)
    #                                                    given  far   far         given near
    batch = replace(batch, reference_logprobs=torch.tensor([[0.0, -2.0, -1.5], [0.0, -1.0, 0.0]]))
    algorithm = GRPO(kl=RewardKL(weight=0.1, kind="k1"))
    assert algorithm.measures(earned(trajectories, [1.0, 1.0]), batch) == {
        "train/kl_reference": pytest.approx((1.0 + 0.5 + 0.0) / 3),
        "train/kl_weight": 0.1,
    }
    estimate = algorithm.estimate_advantages(
        earned(trajectories, [1.0, 1.0]), batch
    ).advantages  # rewards 1 - 0.1 x 1.5 and 1
    assert estimate[0, 1] == estimate[0, 2] < 0 < estimate[1, 1]


def test_a_token_pays_for_itself_and_for_those_after_it():
    trajectory = played(turn([1], {3: -1.0, 4: -1.0, 5: -1.0}))
    batch = replace(pack([trajectory]), reference_logprobs=torch.tensor([[0.0, -2.0, -1.0, -1.5]]))
    algorithm = ReinforcePP(kl=RewardKL(weight=0.1, kind="k1"), gamma=0.5)
    first, second, third = (
        algorithm.estimate_advantages(earned([trajectory], [0.0]), batch).advantages[0, 1:].tolist()
    )
    assert (first - third) / (second - third) == pytest.approx(
        -2.5
    )  # returns -0.1125, -0.025 and -0.05
