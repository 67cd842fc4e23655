"""The agent that runs Python blocks until a reply contains no block (CodeAct, arXiv 2402.01030)."""

import re
from collections.abc import Sequence

from agentfly_core.records.trajectory import Ending, Message, Observation, ToolCall
from agentfly_core.rollout.episode import Episode
from agentfly_core.system.formats.text import without_thoughts

STOP = "\n```\n"
_BLOCK = re.compile(r"^```(?:python|py)[ \t]*\n(.*?)(?=^```|\Z)", re.DOTALL | re.MULTILINE)
"""Matches from the opening fence to the closing fence, or to the end of the reply."""


async def code_block(episode: Episode) -> Ending:
    """Run the Python block in each reply until a reply contains no block.

    A reply with a block looks like this:

        I add them up.
        ```python
        print(sum(i**2 for i in range(12, 15)))
        ```

    The model reads the output of the program. The episode ends with a reply without a block, such
    as `509`. The last line of that reply is the answer. If a token limit cut that reply, the
    episode has no answer.

    The experiment needs:

    - `"\\n```\\n"` in `agent.stop`, so that the model cannot invent output
    - a tool named python, such as `agentfly_core.tools.python:python`
    - `template.show_tools: false`
    - an explanation of the format in `agent.system`, if the model is not warm-started

    Raises ValueError if the experiment has no tool named python.
    """
    if "python" not in (schema.name for schema in episode.rules.schemas):
        raise ValueError(
            "The agent code_block needs a tool named python: list "
            "agentfly_core.tools.python:python under `tools`."
        )
    read: Sequence[Message | Observation] = episode.opening
    while True:
        reply = await episode.reply(*read, stop=[STOP])
        text = without_thoughts(reply.content)
        block = _BLOCK.search(text)
        if block is None:
            if not reply.cut:
                episode.answer(text.strip().rpartition("\n")[2].strip())
            return Ending.NO_TOOL_CALLS
        read = await episode.call(ToolCall("python", {"code": block[1]}))
