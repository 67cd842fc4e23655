"""A tool and a call of it, in ChatML."""

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.records.trajectory import ToolCall

ADD = ToolCall("calculator", {"expression": "41+58"})
ADD_TEXT = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "41+58"}}\n</tool_call>'
CALCULATOR = ToolSchema(
    "calculator",
    "Work out an expression.",
    {
        "type": "object",
        "properties": {"expression": {"type": "string"}},
        "required": ["expression"],
    },
)
