"""The weight of one token in the loss of its optimizer step."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentfly_core.rl.aggregation import SeqMeanTokenMean, SeqMeanTokenSum, SeqSumNorm, TokenMean
from agentfly_core.rl.batch import pack
from agentfly_core.testing.trajectories import trajectory, turn
from tests.support import reference
from tests.support.random_updates import by_trajectory, ragged

SHORT = trajectory(turn([1], {3: -1.0}))
FOLDED = trajectory(
    turn([1], {3: -1.0, 4: -1.0}), turn([1], {3: -1.0}, context=1)
)  # three tokens in two rows


@pytest.mark.parametrize(
    ("aggregation", "of_folded", "of_short"),
    [
        (TokenMean(), 1 / 4, 1 / 4),
        (SeqMeanTokenMean(), 1 / 2 / 3, 1 / 2),
        (SeqMeanTokenSum(), 1 / 2, 1 / 2),
        (SeqSumNorm(horizon=10), 1 / 2 / 10, 1 / 2 / 10),
    ],
)
def test_a_sequence_is_a_trajectory_however_many_rows_it_has(aggregation, of_folded, of_short):
    weights = aggregation.weights(pack([FOLDED, SHORT]))
    expected = [[0, of_folded, of_folded], [0, of_folded, 0], [0, of_short, 0]]
    assert weights.tolist() == [pytest.approx(row) for row in expected]


def test_a_trajectory_without_a_sampled_token_does_not_count():
    assert SeqMeanTokenSum().weights(pack([SHORT, trajectory()])).tolist() == [[0.0, 1.0]]


def test_an_optimizer_step_without_rows_weighs_nothing():
    for aggregation in (TokenMean(), SeqMeanTokenMean(), SeqMeanTokenSum(), SeqSumNorm(horizon=10)):
        assert aggregation.weights(pack([])).shape == (0, 0)


DEFINITIONS = [
    (TokenMean(), reference.token_mean),
    (SeqMeanTokenMean(), reference.seq_mean_token_mean),
    (SeqMeanTokenSum(), reference.seq_mean_token_sum),
    (SeqSumNorm(horizon=7), lambda losses: reference.seq_sum_norm(losses, 7)),
]


@pytest.mark.parametrize(
    ("aggregation", "definition"), DEFINITIONS, ids=[one.use for one, _ in DEFINITIONS]
)
@settings(max_examples=8)
@given(seed=st.integers(0, 10_000))
def test_the_weighted_sum_is_the_mean_of_the_definition(aggregation, definition, seed):
    torch.manual_seed(seed)
    case = ragged(seed)
    losses = torch.randn(case.batch.sampled.shape)
    total = (aggregation.weights(case.batch) * losses).sum()
    assert total.item() == pytest.approx(definition(by_trajectory(losses, case.batch, 8)), abs=1e-6)
