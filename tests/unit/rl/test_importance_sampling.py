"""Weights for a sampler that differs from the learner."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.rl.batch import pack
from agentfly_core.rl.importance_sampling import IcePop, SequenceMask, SequenceTIS, TokenTIS
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support import reference
from tests.support.random_updates import ragged


def apart(*factors):
    """One row; `factors` are the ratios of learner to sampler probability of its sampled tokens."""
    batch = pack([trajectory(turn([1], {i + 2: -3.0 for i in range(len(factors))}))])
    return replace(
        batch, old_logprobs=torch.tensor([[0.0, *(math.log(factor) - 3.0 for factor in factors)]])
    )


@pytest.mark.parametrize(
    ("correction", "weights", "beyond"),
    [
        (TokenTIS(cap=2.0), [0.5, 2.0, 1.0], [0, 1, 0]),
        (SequenceTIS(cap=2.0), [2.0, 2.0, 2.0], [1, 1, 1]),  # 0.5 x 8 x 1 = 4
        (SequenceTIS(cap=5.0), [4.0, 4.0, 4.0], [0, 0, 0]),
        (IcePop(low=0.6, high=9.0), [0.0, 8.0, 1.0], [1, 0, 0]),
        (SequenceMask(low=0.5, high=2.0), [1.0, 1.0, 1.0], [0, 0, 0]),  # the cube root of 4 is 1.59
        (SequenceMask(low=0.5, high=1.5), [0.0, 0.0, 0.0], [1, 1, 1]),
    ],
    ids=lambda value: repr(value) if hasattr(value, "use") else None,
)
def test_the_weights_of_three_probability_ratios(correction, weights, beyond):
    actual = correction.weights(apart(0.5, 8.0, 1.0))
    assert actual.tokens[0, 1:].tolist() == pytest.approx(weights)
    assert actual.metrics["mismatch/masked_share"][0, 1:].tolist() == beyond


def test_corrections_do_not_depend_on_context_or_speaker():
    """A speaker's two contexts that take turns, and another one's: each token 0.5, 8, 1 or 4
    times as probable by now.
    """
    turns = [turn([1], {2: -3.0}, context=c, version=v) for c, v in ((0, 3), (1, 4), (0, 4))]
    batch = pack([trajectory(*turns), trajectory(turn([1], {2: -3.0}), name="t1", agent="other")])
    #                                            context 0     context 1     the other's
    now = torch.tensor([0.5, 1.0, 8.0, 4.0]).log() - 3.0
    batch = replace(batch, old_logprobs=torch.zeros_like(batch.rollout_logprobs))
    batch.old_logprobs[batch.sampled] = now
    actual = TokenTIS(cap=4.0).weights(batch).tokens[batch.sampled]
    assert actual.tolist() == pytest.approx([0.5, 1.0, 4.0, 4.0])
    actual = IcePop(low=0.6, high=5.0).weights(batch).tokens[batch.sampled]
    assert actual.tolist() == pytest.approx([0.0, 1.0, 0.0, 4.0])


def test_a_sampler_that_agrees_is_not_corrected():
    for correction in (TokenTIS(), SequenceTIS(), IcePop(), SequenceMask()):
        assert correction.weights(apart(1.0, 1.0)).tokens[0, 1:].tolist() == [1.0, 1.0]


def test_bounds_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match="low is 3 and high is 2"):
        SequenceMask(low=3.0, high=2.0)


DEFINITIONS = [
    (TokenTIS(cap=1.3), lambda row: reference.token_tis(row, 1.3)),
    (SequenceTIS(cap=1.3), lambda row: reference.sequence_tis(row, 1.3)),
    (IcePop(low=0.8, high=1.4), lambda row: reference.icepop(row, 0.8, 1.4)),
    (SequenceMask(low=0.9, high=1.2), lambda row: reference.sequence_mask(row, 0.9, 1.2)),
]


@pytest.mark.parametrize(
    ("correction", "definition"), DEFINITIONS, ids=[one.use for one, _ in DEFINITIONS]
)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_weights_are_those_of_the_definition(correction, definition, seed):
    batch = ragged(seed).batch
    actual = correction.weights(batch).tokens
    apart = (batch.old_logprobs.double() - batch.rollout_logprobs.double()).exp()
    for row, here in enumerate(batch.sampled):
        assert actual[row][here].tolist() == pytest.approx(
            definition(apart[row][here].tolist()), abs=1e-6
        )
