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
    """Plays episodes with replies such as

        Thought: The calculator can work that out.
        Action: calculator
        Action Input: 41+58
        Observation:

    and then, after the tool's answer, `Final Answer: 99`. Replies of another form get an error
    message. Replies that a token limit cut do not count as answers.

    The experiment needs `Observation:` in `agent.stop`, so that the model cannot invent answers,
    and `template.show_tools: false`. With `instructions` the system message explains the form and
    the tools, which a warm-started model does not need.
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
    """Parse the call in a reply.

    The action input is a JSON object, or the text of the tool's only argument.
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
