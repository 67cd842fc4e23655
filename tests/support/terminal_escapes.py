"""An experiment with terminal control characters in every external text."""

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Message, Problem, ToolCall, Trajectory, Unscored

HOSTILE = "A\x1b]0;title\x07B\x1b]52;c;aGk=\x1b\\C\x9b31mD\u202eE\u2066F\x7fG\rH"
"""A title, the clipboard, a colour by C1, marks of direction, DEL and a carriage return."""
WRITTEN = r"A\x1b]0;title\x07B\x1b]52;c;aGk=\x1b\C\x9b31mD\u202eE\u2066F\x7fG\rH"
EXPERIMENT = """
model: nano:calculator
template: {use: "agentfly_core.inference.templates.chatml:Hermes", show_tools: false}
data: {use: "tests.support.terminal_escapes:questions", train: 3, validation: 0, test: 1}
agent: {max_turns: 3, max_tokens: 400, max_model_len: 2000}
tools: ["tests.support.terminal_escapes:look_up"]
rewards: {"tests.support.terminal_escapes:graded": 1.0}
rollout: {problems: 2, shard: 4}
steps: 1
"""


def questions(seed: int, train: int, validation: int, test: int) -> dict[str, list[Problem]]:
    """Questions with hostile ids, texts and facts."""
    problems = [
        Problem(f"{number}{HOSTILE}", f"{number} {HOSTILE}?", {"answer": HOSTILE})
        for number in range(train + test)
    ]
    return {"train": problems[:train], "validation": [], "test": problems[train:]}


@tool
async def look_up(text: str) -> str:
    """Repeat a text."""
    return HOSTILE


@reward
def graded(trajectory: Trajectory, problem: Problem) -> float | Unscored:
    """No score for one problem, an error for another."""
    match problem.id[0]:
        case "0":
            return Unscored(HOSTILE)
        case "1":
            raise ValueError(HOSTILE)
    return 1.0


async def speaks(conversation: Conversation) -> Message:
    """Call the tool, then answer; both are hostile."""
    call = ToolCall("look_up", {"text": HOSTILE})
    return Message("assistant", HOSTILE, () if conversation.turn else (call,))


async def breaks(conversation: Conversation) -> Message:
    """Raise an error of hostile text."""
    raise RuntimeError(HOSTILE)
