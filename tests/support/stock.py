"""A custom experiment without a recipe: count things in rooms."""

from collections.abc import Sequence

from agentfly_core import Message, Problem, ToolCall, Trajectory, reward, tool
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.system.formats import hashing

ROOMS = [
    "attic",
    "barn",
    "cellar",
    "garage",
    "hall",
    "kitchen",
    "loft",
    "office",
    "pantry",
    "stable",
    "study",
    "tower",
]
THINGS = [
    "books",
    "bottles",
    "boxes",
    "chairs",
    "clocks",
    "coats",
    "ladders",
    "lamps",
    "plates",
    "ropes",
    "shoes",
    "tables",
]
PLACES = [(room, thing) for thing in THINGS for room in ROOMS]
EXPERIMENT = """
model: nano
template: {use: "agentfly_core.inference.templates.chatml:Hermes", show_tools: false}
data: {use: "tests.support.stock:stock", train: 96, validation: 16, test: 32}
agent: {max_turns: 3, max_tokens: 32, max_model_len: 256}
tools: ["tests.support.stock:count", "agentfly_core.tools.answer:answer"]
rewards: {"tests.support.stock:right": 1.0}
warm_start:
  demonstrations: "tests.support.stock:shown"
  settings: {spoilt: 0.4}
  episodes: 2048
  rounds: 4
  batch: 32
rollout: {problems: 32, group_size: 8, shard: 128}
evaluate: {episodes: 4}
update: {learning_rate: 3.0e-4, mini_batches: 4}
steps: 8
"""


def counted(room: str, thing: str) -> str:
    """How many of these the room has."""
    return str(10 + hashing.seed("stock", room, thing) % 90)


@tool
async def count(room: str, thing: str) -> str:
    """Count the things of one kind in a room."""
    return counted(room, thing)


@reward
def right(trajectory: Trajectory, problem: Problem) -> float:
    """Whether the answer is their number."""
    return float(trajectory.answer == problem.facts["answer"])


def stock(
    seed: int, train: int, validation: int, test: int, held_out: str = "How many {} has the {}?"
) -> dict[str, list[Problem]]:
    """Split the 144 pairs of a room and a thing; `held_out` is the question template of the other
    splits.
    """
    order = sorted(PLACES, key=lambda place: hashing.seed(seed, *place))
    problems = [
        Problem(
            f"{room}-{thing}",
            ("How many {} has the {}?" if number < train else held_out).format(thing, room),
            {"room": room, "thing": thing, "answer": counted(room, thing)},
        )
        for number, (room, thing) in enumerate(order)
    ]
    last = train + validation + test
    return {
        "train": problems[:train],
        "validation": problems[train : train + validation],
        "test": problems[train + validation : last],
    }


def shown(problems: Sequence[Problem], seed: int, spoilt: float = 0.4) -> ScriptedPolicy:
    """Count, then answer; a share `spoilt` of the episodes counts in another room."""

    async def policy(conversation: Conversation) -> Message:
        if conversation.turn:
            reply = {"answer": conversation.messages[-1].content}
            return Message("assistant", "", (ToolCall("answer", reply),))
        facts = conversation.problem.facts
        draw = hashing.seed(seed, conversation.problem.id, conversation.chain)
        wrong = draw % 100 < 100 * spoilt
        room = ROOMS[draw // 100 % len(ROOMS)] if wrong else facts["room"]
        place = {"room": room, "thing": facts["thing"]}
        return Message("assistant", "", (ToolCall("count", place),))

    return policy
