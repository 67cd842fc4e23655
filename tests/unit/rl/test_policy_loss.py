"""Loss and sign of the gradient of each sampled token."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.rl.batch import pack
from agentfly_core.rl.interface import Outputs
from agentfly_core.rl.policy_loss import CISPO, DPPO, GSPO, SAPO, Clip, Reinforce
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support import reference
from tests.support.random_updates import now, ragged, tokens


def of_token(policy_loss, ratio, advantage, probability=0.1):
    """The loss, slope and first metric of one token that is `ratio` times as probable as before."""
    batch = pack([trajectory(turn([1], {3: math.log(probability)}))])
    batch = replace(batch, advantages=torch.tensor([[0.0, advantage]]))
    logprobs = torch.tensor([[0.0, math.log(probability * ratio)]], requires_grad=True)
    result = policy_loss.tokens(Outputs(logprobs, torch.zeros(1, 2), torch.zeros(1, 2)), batch)
    result.tokens.sum().backward()
    metric = next(iter(result.metrics.values()), torch.zeros(1, 2))
    return result.tokens[0, 1].item(), logprobs.grad[0, 1].item(), metric[0, 1].item()


@pytest.mark.parametrize(
    ("policy_loss", "ratio", "advantage", "loss", "slope", "clipped"),
    [
        (Clip(), 1.1, 2.0, -2.2, -2.2, 0),
        (Clip(), 1.5, 2.0, -2.4, 0.0, 1),  # further than 1.2: nothing more to gain
        (Clip(high=0.28), 1.5, 2.0, -2.56, 0.0, 1),
        (Clip(), 0.5, 2.0, -1.0, -1.0, 0),  # a good token that became rare is brought back
        (Clip(), 0.5, -2.0, 1.6, 0.0, 1),
        (Clip(), 5.0, -2.0, 10.0, 10.0, 0),
        (Clip(dual=3.0), 5.0, -2.0, 6.0, 0.0, 1),
        (Clip(dual=3.0), 5.0, 2.0, -2.4, 0.0, 1),
        (CISPO(), 3.0, 2.0, None, -6.0, 0),
        (CISPO(), 8.0, 2.0, None, -10.0, 1),  # at most 1 + 4
        (CISPO(), 0.1, 2.0, None, -0.2, 0),  # no bound below
        (CISPO(low=0.2), 0.1, 2.0, None, -1.6, 1),
        (SAPO(), 1.0, 2.0, -4.0, -2.0, 1),  # on-policy the slope of -A rho
        (DPPO(), 2.5, 2.0, -5.0, -5.0, 0),  # 0.10 -> 0.25: a ratio's bound would have stopped it
        (DPPO(), 4.0, 2.0, 0.0, 0.0, 1),  # 0.10 -> 0.40, further than 0.2
        (DPPO(), 4.0, -2.0, 8.0, 8.0, 0),  # the wrong way: brought back
        (Reinforce(), 1.0, 2.0, -2.0 * math.log(0.1), -2.0, 0),
    ],
)
def test_one_token_costs_and_pulls(policy_loss, ratio, advantage, loss, slope, clipped):
    result = of_token(policy_loss, ratio, advantage)
    assert result[1:] == pytest.approx((slope, clipped), rel=1e-5)
    assert loss is None or result[0] == pytest.approx(loss, rel=1e-5)


def test_a_bad_token_that_fell_far_is_dropped_by_total_variation():
    assert of_token(DPPO(), 0.5, -1.0, probability=0.8) == (0.0, 0.0, 1.0)  # 0.8 -> 0.4
    assert of_token(DPPO(), 0.5, -1.0, probability=0.1)[1] == pytest.approx(0.5)  # 0.1 -> 0.05


def test_the_soft_gate_closes_earlier_for_bad_tokens():
    good, bad = of_token(SAPO(), 3.0, 1.0)[2], of_token(SAPO(), 3.0, -1.0)[2]
    assert 0 < bad < good < 1


def test_a_reply_has_one_ratio_the_geometric_mean_of_its_tokens():
    batch = replace(
        pack([trajectory(turn([1], {3: 0.0, 4: 0.0}))]), advantages=torch.tensor([[0.0, 1.0, 1.0]])
    )
    logprobs = torch.tensor(
        [[0.0, math.log(4.0), 0.0]], requires_grad=True
    )  # ratios 4 and 1: their mean is 2
    losses = (
        GSPO(high=5.0).tokens(Outputs(logprobs, torch.zeros(1, 3), torch.zeros(1, 3)), batch).tokens
    )
    losses.sum().backward()
    assert losses.tolist() == [pytest.approx([0.0, -2.0, -2.0])]
    assert logprobs.grad.tolist() == [pytest.approx([0.0, -2.0, -2.0])]


def test_each_row_of_a_trajectory_has_a_ratio_of_its_own():
    folded = trajectory(turn([1], {3: 0.0}), turn([1], {3: 0.0}, context=1))
    batch = replace(pack([folded]), advantages=torch.tensor([[0.0, 1.0], [0.0, 1.0]]))
    logprobs = torch.tensor([[0.0, math.log(4.0)], [0.0, 0.0]])
    losses = GSPO(high=5.0).tokens(Outputs(logprobs, logprobs, logprobs), batch).tokens
    assert losses[:, 1].tolist() == pytest.approx([-4.0, -1.0])


def test_a_ratio_beyond_all_numbers_stays_finite():
    for policy_loss in (Clip(), GSPO(), CISPO(), SAPO(), DPPO()):
        batch = replace(
            pack([trajectory(turn([1], {3: -1000.0}))]), advantages=torch.tensor([[0.0, -1.0]])
        )
        losses = policy_loss.tokens(
            Outputs(torch.zeros(1, 2), torch.zeros(1, 2), torch.zeros(1, 2)), batch
        )
        assert losses.tokens.isfinite().all(), policy_loss


DEFINITIONS = [
    (Clip(), lambda t: reference.clip(t, 0.2, 0.2, None)),
    (Clip(low=0.1, high=0.4, dual=1.3), lambda t: reference.clip(t, 0.1, 0.4, 1.3)),
    (GSPO(low=0.1, high=0.1), lambda t: reference.gspo(t, 0.1, 0.1)),
    (CISPO(low=0.3, high=0.3), lambda t: reference.cispo(t, 0.3, 0.3)),
    (SAPO(), lambda t: reference.sapo(t, 1.0, 1.05)),
    (SAPO(tau=0.5, tau_bad=2.0), lambda t: reference.sapo(t, 0.5, 2.0)),
    (DPPO(low=0.05, high=0.05), lambda t: reference.dppo(t, 0.05, 0.05)),
    (Reinforce(), reference.reinforce),
]


@pytest.mark.parametrize(
    ("policy_loss", "definition"), DEFINITIONS, ids=[repr(one) for one, _ in DEFINITIONS]
)
@settings(max_examples=6)
@given(seed=st.integers(0, 10_000))
def test_losses_and_their_slopes_are_those_of_the_definition(policy_loss, definition, seed):
    torch.manual_seed(seed)
    batch = ragged(seed).batch
    batch = replace(batch, advantages=torch.randn(batch.sampled.shape) * batch.sampled)
    outputs = now(batch, seed)
    losses = policy_loss.tokens(outputs, batch).tokens
    (slopes,) = torch.autograd.grad(losses.sum(), outputs.logprobs)
    for row, t, token in tokens(outputs, batch):
        loss, slope = definition(token)
        assert losses[row, t].item() == pytest.approx(loss, abs=1e-6, rel=3e-5)
        # in float32 a gate near 1 leaves few digits of 1 - gate
        assert slopes[row, t].item() == pytest.approx(slope, abs=1e-6, rel=2e-4)
