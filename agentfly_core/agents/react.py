"""The ReAct agent (arXiv 2210.03629), which calls tools in plain text."""

import json
import re
from collections.abc import Mapping, Sequence

from agentfly_core.authoring.chat_template import ToolSchema
from agentfly_core.records.trajectory import BadCall, Ending, Message, Observation, ToolCall
from agentfly_core.rollout.episode import Episode
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.text import without_thoughts

STOP, ANSWER = "Observation:", "Final Answer:"
_ACTION = re.compile(r"Action:(.*?)\n\s*Action Input:(.*)", re.DOTALL)
_INSTRUCTIONS = """Answer the question. You have these tools:

{tools}

Write in this form:

Thought: what to do next
Action: the name of a tool, one of {names}
Action Input: its arguments as a JSON object
Observation: what the tool answers

Thought, Action, Action Input and Observation may come several times. In the end write:

Thought: I know the answer.
Final Answer: the answer, and nothing else"""


class React:
    """Calls the tools that the model names in its replies, which look like this:

        Thought: The calculator can work that out.
        Action: calculator
        Action Input: 41+58
        Observation:

    The model reads the tool's answer and may call a tool again. A reply with `Final Answer: 99`
    ends the episode. A reply in neither of these two formats gets an error message. Replies that
    were cut at a token limit do not count as answers.

    The experiment needs `template.show_tools: false`, and `Observation:` in `agent.stop`, so that
    the model cannot invent answers of tools. If `instructions` is True, the system message explains
    the format and the tools. A warm-started model does not need this explanation.
    """

    def __init__(self, instructions: bool = True) -> None:
        self.instructions = instructions

    async def __call__(self, episode: Episode) -> Ending:
        read: Sequence[Message | Observation] = episode.opening
        schemas = episode.rules.schemas
        if self.instructions:
            system = "\n\n".join(filter(None, [episode.rules.system, instructions(schemas)]))
            read = (Message("system", system), *episode.opening[bool(episode.rules.system) :])
        while True:
            reply = await episode.reply(*read, stop=[STOP])
            text = without_thoughts(reply.content)
            _, marker, answer = text.partition(ANSWER)
            if marker:
                if not reply.cut:
                    episode.answer(answer.strip())
                return Ending.NO_TOOL_CALLS
            read = await episode.call(action(text, schemas))


def instructions(tools: Sequence[ToolSchema]) -> str:
    lines = (
        f"{tool.name}: {tool.description} Arguments: "
        f"{json.dumps(tool.parameters.get('properties', {}), ensure_ascii=False)}"
        for tool in tools
    )
    names = ", ".join(tool.name for tool in tools)
    return _INSTRUCTIONS.format(tools="\n".join(lines), names=names)


def action(text: str, tools: Sequence[ToolSchema]) -> ToolCall | BadCall:
    """Parse the tool call in a reply.

    The text after "Action Input:" is a JSON object with the arguments. If the tool has a single
    argument of the type string, the text can also be the value of this argument. If the call cannot
    be parsed, return BadCall.
    """
    match = _ACTION.search(text)
    if match is None:
        fault = f"expected lines with 'Action:' and 'Action Input:', or with '{ANSWER}'"
        return BadCall(text.strip(), fault)
    name, written = match[1].strip(), match[2].strip()
    tool = next((one for one in tools if one.name == name), None)
    if tool is None:
        return ToolCall(name, {})
    try:
        value, fault = strict_json.parse(written), ""
    except ValueError as error:
        value, fault = None, f": {error}"
    if isinstance(value, Mapping):
        return ToolCall(name, value)
    properties = tool.parameters.get("properties")
    if isinstance(properties, Mapping) and len(properties) == 1:
        [(only, schema)] = properties.items()
        if isinstance(schema, Mapping) and schema.get("type") == "string":
            return ToolCall(name, {only: value if isinstance(value, str) else written})
    return BadCall(written, f"expected a JSON object as the input of {name}{fault}")
