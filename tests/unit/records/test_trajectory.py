"""The record: tokens enter once, the mask is the type of the span."""

from dataclasses import replace

import pytest

from agentfly_core.records.trajectory import (
    Ending,
    Observation,
    Sampled,
)
from tests.support.recorded_episode import FIRST, SECOND, trajectory


def test_tokens_without_their_log_probabilities_are_refused():
    with pytest.raises(ValueError, match="2 tokens and 1 log-probabilities"):
        Sampled((4, 5), (-0.5,), 0, "stop")


def test_the_answer_is_the_end_of_the_episode():
    whole = replace(SECOND, sampled=SECOND.sampled[:1])
    assert trajectory(turns=(FIRST, whole)).answer == "99"
    ended = trajectory(ending=Ending.TERMINAL, closing=(Observation("answer", "98"),))
    assert ended.answer == "98"
    assert trajectory(ending=Ending.MAX_TURNS).answer is None
    assert [o.content for o in ended.observations] == ["99", "98"]
    assert ended.sampled_tokens == 5


def test_thoughts_are_no_part_of_the_answer():
    reply = replace(FIRST.reply, content="<think>98? No.</think>99", calls=())
    assert trajectory(turns=(replace(FIRST, reply=reply),)).answer == "99"


def test_a_cut_reply_is_the_answer_only_where_the_agent_sets_it():
    assert SECOND.sampled[-1].finish == "length"
    assert trajectory().answer is None
    assert replace(trajectory(), answered="99").answer == "99"
