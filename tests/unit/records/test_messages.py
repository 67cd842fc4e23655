"""Messages as text."""

from agentfly_core.records.messages import said_text
from agentfly_core.records.trajectory import Message, ToolCall
from agentfly_core.testing import turn


def test_reasoning_is_shown_apart_from_the_answer():
    call = ToolCall("calculator", {"expression": "41+58"})
    reply = Message("assistant", "I see.", (call,), reasoning="41+58 is 99")
    assert said_text(turn([1], {2: -0.5}, reply=reply)) == (
        '[reasoning: 41+58 is 99]\nI see.\ncalculator({"expression": "41+58"})'
    )
    assert said_text(turn([1], {2: -0.5}, reply="99")) == "99"
