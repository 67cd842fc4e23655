"""Keeping near a reference policy."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agentfly_core.rl.kl import KL, LossKL, kl
from tests.support import reference

KINDS = ("k1", "k2", "k3", "abs")


@pytest.mark.parametrize(
    ("kind", "value"), [("k1", 0.7), ("k2", 0.245), ("k3", 0.5 - 1 + 0.7), ("abs", 0.7)]
)
def test_a_token_twice_as_probable_as_for_the_reference(kind, value):
    assert kl(torch.tensor(math.log(2)), torch.tensor(0.0), kind).item() == pytest.approx(
        value, abs=0.01
    )


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_its_mean_over_samples_is_the_divergence(kind):
    policy, other = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.3, 0.6])
    mean = (policy * kl(policy.log(), other.log(), kind)).sum()
    assert mean.item() == pytest.approx((policy * (policy / other).log()).sum().item())


@given(kind=st.sampled_from(KINDS), logprob=st.floats(-15, 0), other=st.floats(-15, 0))
def test_estimates_are_those_of_the_definition(kind, logprob, other):
    divergence = kl(*torch.tensor([logprob, other], dtype=torch.float64), kind)
    assert divergence.item() == pytest.approx(reference.divergence(logprob, other, kind), abs=1e-6)


def test_the_loss_refuses_k1_with_its_vanishing_gradient():
    with pytest.raises(ValidationError, match="Input should be 'k2', 'k3' or 'abs'"):
        LossKL(kind="k1")


def test_the_penalty_is_in_the_loss_or_in_the_reward():
    assert TypeAdapter(KL).validate_python("loss") == LossKL(weight=0.001, kind="k3")
    assert TypeAdapter(KL).validate_python({"use": "reward", "kind": "k1"}).use == "reward"
