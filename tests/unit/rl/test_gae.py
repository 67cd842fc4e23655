"""Generalised advantages of a learned value: of tokens, of turns, and of both."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.algorithms.ppo import PPO
from agentfly_core.rl.advantage import sequences
from agentfly_core.rl.batch import pack
from agentfly_core.rl.gae import BilevelGAE, TokenGAE, TurnGAE
from agentfly_core.rl.interface import Outputs
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support import reference
from tests.support.generated_trajectories import earned
from tests.support.random_updates import by_trajectory, ragged

TWO_TURNS = trajectory(turn([1], {3: -1.0, 4: -1.0}), turn([5, 6], {3: -1.0, 4: -1.0}))


def estimated(gae, values, by_turn):
    """Advantages and returns of TWO_TURNS' four sampled tokens; tokens of the prompt have the value
    9.
    """
    batch = pack([TWO_TURNS])
    #                                       read   turn 0      read      turn 1
    batch = replace(batch, old_values=torch.tensor([[9.0, *values[:2], 9.0, 9.0, *values[2:]]]))
    outcomes, layout = earned([TWO_TURNS], [sum(by_turn)], batch, [by_turn]), sequences(batch, 1)
    estimate = gae.estimate(
        outcomes.token_rewards, layout.gather(batch.old_values).double(), layout.turns
    )
    return [part[0].tolist() for part in estimate]


def test_prompt_tokens_are_not_discounted():
    advantages, returns = estimated(TokenGAE(gamma=1.0, lam=0.95), [0.1, 0.2, 0.3, 0.4], [0.0, 1.0])
    assert advantages[0] == pytest.approx(
        0.800, abs=5e-4
    )  # .1 + .95 x .1 + .95^2 x .1 + .95^3 x .6
    assert advantages[3] == pytest.approx(0.6)
    assert returns == pytest.approx(
        [a + v for a, v in zip(advantages, [0.1, 0.2, 0.3, 0.4], strict=True)]
    )


def test_a_turn_is_one_action_with_the_value_of_its_first_token():
    advantages, returns = estimated(TurnGAE(gamma=0.5, lam=1.0), [0.2, 7.0, 0.4, 7.0], [0.1, 1.0])
    assert advantages == pytest.approx(
        [0.4, 0.4, 0.6, 0.6]
    )  # 1 - 0.4; 0.1 + 0.5 x 0.4 - 0.2 + 0.5 x 0.6
    assert returns == pytest.approx([0.6, 0.6, 1.0, 1.0])


def test_a_turn_without_reward_is_a_turn():
    advantages, _ = estimated(TurnGAE(gamma=0.5, lam=1.0), [0.0, 0.0, 0.0, 0.0], [0.0, 1.0])
    assert advantages == pytest.approx([0.5, 0.5, 1.0, 1.0])


def test_bilevel_values_are_by_turn_and_then_by_token():
    gae = BilevelGAE(gamma=1.0, lam=1.0, gamma_turn=0.5, lam_turn=1.0)
    advantages, returns = estimated(gae, [0.1, 0.2, 0.3, 0.4], [0.0, 1.0])
    # ends: 1 - 0.4 = 0.6, and 0.5 x 0.4 - 0.2 + 0.5 x 0.6 = 0.3;
    # so turn 0 is worth 0.5 and turn 1 is worth 1
    assert advantages == pytest.approx([0.4, 0.3, 0.7, 0.6])
    assert returns == pytest.approx([0.5, 0.5, 1.0, 1.0])


def test_the_value_loss_is_clipped_around_the_old_value():
    batch = pack([trajectory(turn([1], {2: -1.0, 3: -1.0, 4: -1.0}))])
    weight = torch.tensor([[0.0, 1.0, 1.0, 1.0]])
    batch = replace(batch, returns=weight.clone(), weight=weight, old_values=torch.zeros(1, 4))
    values = torch.tensor([[0.0, 0.1, 0.9, 3.0]], requires_grad=True)
    outputs = Outputs(batch.old_logprobs, torch.zeros(1, 4), values)
    algorithm = PPO(value_weight=1.0, value_clip=0.2)
    algorithm.loss(outputs, batch).total.backward()
    assert values.grad[0].tolist() == pytest.approx([0.0, 0.1 - 1.0, 0.0, 3.0 - 1.0])


DEFINITIONS = [
    (TokenGAE(gamma=0.9, lam=0.8), lambda story: reference.by_token(story, 0.9, 0.8)),
    (TurnGAE(gamma=0.9, lam=0.8), lambda story: reference.by_turn(story, 0.9, 0.8)),
    (
        BilevelGAE(gamma=0.9, lam=0.8, gamma_turn=0.7, lam_turn=0.6),
        lambda story: reference.bilevel(story, 0.9, 0.8, 0.7, 0.6),
    ),
]


@pytest.mark.parametrize(
    ("gae", "definition"), DEFINITIONS, ids=[one.use for one, _ in DEFINITIONS]
)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_credit_is_that_of_the_definition_and_whitened(gae, definition, seed):
    case = ragged(seed)
    estimate = PPO(gae=gae).estimate_advantages(case.outcomes, case.batch)
    advantages, returns = zip(*map(definition, case.stories), strict=True)
    for actual, expected in (
        (estimate.advantages, reference.whitened(list(advantages))),
        (estimate.returns, returns),
    ):
        for mine, theirs in zip(by_trajectory(actual, case.batch, 8), expected, strict=True):
            assert mine == pytest.approx(theirs, abs=1e-6, rel=1e-5)


@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_the_critics_loss_is_that_of_the_definition(seed):
    torch.manual_seed(seed)
    batch = ragged(seed).batch
    weight, returns, values = (torch.randn(batch.sampled.shape) * batch.sampled for _ in range(3))
    batch = replace(batch, weight=weight, returns=returns)
    loss = (
        PPO(value_weight=0.7, value_clip=0.3)
        .loss(Outputs(batch.old_logprobs, values, values), batch)
        .total
    )
    expected = sum(
        0.7
        * float(weight[at])
        * reference.value_loss(*(float(x[at]) for x in (values, batch.old_values, returns)), 0.3)
        for at in map(tuple, batch.sampled.nonzero().tolist())
    )
    assert loss.item() == pytest.approx(expected, abs=1e-5)
