"""The record: tokens enter once, the mask is the type of the span."""

import pytest

from agentfly_core.records.trajectory import (
    Ending,
    Given,
    Observation,
    Sampled,
    Turn,
)
from agentfly_core.rl.batch import rows
from tests.support.recorded import FIRST, SECOND, trajectory


def test_a_row_is_the_tokens_in_order_and_its_mask_is_the_type_of_the_span():
    (row,) = rows((FIRST, SECOND))
    #                  given    sampled  given  sampled
    assert row.tokens == (1, 2, 3, 4, 5, 6, 7, 8, 9)
    assert row.sampled == (False, False, False, True, True, False, True, True, True)
    assert row.versions == (-1, -1, -1, 6, 6, -1, 6, 7, 7)
    assert row.turn == (0, 0, 0, 0, 0, 1, 1, 1, 1)
    assert row.logprobs == (0, 0, 0, -0.5, -0.25, 0, -1.0, -0.125, -2.0)


def test_a_turn_in_a_fresh_context_starts_a_row():
    fresh = Turn(SECOND.read, Given((1, 6)), SECOND.reply, SECOND.sampled, fresh_context=True)
    assert [row.tokens for row in rows((FIRST, fresh))] == [(1, 2, 3, 4, 5), (1, 6, 7, 8, 9)]
    assert [row.turn for row in rows((FIRST, fresh))] == [(0,) * 5, (1,) * 5]


def test_tokens_without_their_log_probabilities_are_refused():
    with pytest.raises(ValueError, match="2 tokens and 1 log-probabilities"):
        Sampled((4, 5), (-0.5,), 0, "stop")


def test_the_answer_is_what_ended_the_episode():
    assert trajectory().answer == "99"
    ended = trajectory(ending=Ending.TERMINAL, closing=(Observation("answer", "98"),))
    assert ended.answer == "98"
    assert trajectory(ending=Ending.MAX_TURNS).answer is None
    assert [o.content for o in ended.observations] == ["99", "98"]
    assert ended.sampled_tokens == 5
