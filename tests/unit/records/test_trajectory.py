"""The record: tokens enter once, the mask is the type of the span."""

import pytest

from agentfly_core.records.trajectory import (
    Ending,
    Observation,
    Sampled,
)
from tests.support.recorded import trajectory


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
