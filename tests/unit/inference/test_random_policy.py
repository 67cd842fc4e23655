"""The random policy makes only calls that the tools accept."""

import enum
from collections import Counter
from typing import Annotated, Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.authoring.tool_schema import Arguments
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.records.trajectory import Ending, Message, Problem, ToolCall
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator
from tests.support.ready_made_parts import shipped_tools

DRAWS = 60


class Colour(enum.Enum):
    RED = "red"
    NUMBER = 1


class Product(BaseModel):
    key: str
    price: Annotated[float, Field(ge=0, lt=1)]
    tags: list[str] = []


class Place(TypedDict):
    street: str
    number: NotRequired[int]


def choices(
    colour: Colour, unit: Literal["m", "km", 3], flag: bool, nothing: None, way: Literal["out"]
) -> None:
    """Choose."""


def ranges(
    count: Annotated[int, Field(ge=3, le=4)],
    many: Annotated[int, Field(gt=100)],
    share: Annotated[float, Field(gt=0, lt=0.001)],
    low: Annotated[int, Field(lt=-5)],
) -> None:
    """Count."""


def texts(
    name: str,
    letter: Annotated[str, Field(max_length=1)],
    code: Annotated[str, Field(pattern="^[A-Z]{3}[0-9]{4}$", examples=["ABC1234", "XYZ0042"])],
) -> None:
    """Write."""


def lists(
    words: Annotated[list[str], Field(min_length=2, max_length=3)],
    pair: tuple[int, str],
    many: tuple[float, ...],
    either: int | list[bool] | None,
    anything: Any,
) -> None:
    """List."""


def records(product: Product, place: Place, places: list[Place] | None = None) -> None:
    """Record."""


def optional(text: str = "x", number: int | None = None, colour: Colour = Colour.RED) -> None:
    """Leave out."""


def nothing() -> None:
    """Take nothing."""


def described(
    query: Annotated[str, Field(description="what to look for")],
    limit: Annotated[int, Field(ge=1, le=10, description="how many")] = 5,
) -> None:
    """Search."""


ODD = [tool(f) for f in (choices, ranges, texts, lists, records, optional, nothing, described)]


def conversation(seed: int, *offered: Tool) -> Conversation:
    """The first turn of a question, with these tools."""
    problem = Problem("add-41-58", "What is 41+58 in words?")
    messages = (Message("user", problem.prompt),)
    return Conversation(problem, 0, 0, messages, tuple(one.schema for one in offered), seed)


@pytest.mark.parametrize("offered", [*ODD, *shipped_tools()], ids=lambda offered: offered.name)
async def test_the_tool_accepts_every_call(offered: Tool) -> None:
    accepts: Arguments = offered._arguments
    for seed in range(DRAWS):
        reply = await random_policy(conversation(seed, offered))
        assert isinstance(reply, Message)
        (call,) = reply.calls
        assert isinstance(call, ToolCall)
        assert call.name == offered.name
        accepts.read(call.arguments)


async def test_tools_are_equally_likely_and_calls_reproducible() -> None:
    replies = [await random_policy(conversation(seed, *ODD[:4])) for seed in range(400)]
    counts = Counter(reply.calls[0].name for reply in replies)  # type: ignore[union-attr]
    assert counts.keys() == {"choices", "ranges", "texts", "lists"}
    assert all(70 <= count <= 130 for count in counts.values())
    assert await random_policy(conversation(7, *ODD[:4])) == replies[7]


async def test_texts_are_words_of_the_conversation() -> None:
    expressions = set()
    for seed in range(DRAWS):
        reply = await random_policy(conversation(seed, calculator))
        expressions.add(reply.calls[0].arguments["expression"])  # type: ignore[union-attr]
    assert {"words?", "41+58"} <= expressions
    assert max(map(len, expressions)) < 40


async def test_without_tools_the_reply_is_a_few_words() -> None:
    assert set(str(await random_policy(conversation(1))).split()) <= {
        "What",
        "is",
        "41+58",
        "in",
        "words?",
    }


async def test_it_plays_until_a_tool_or_the_turn_limit_ends_it() -> None:
    rules = rollout_spec(calculator, answer, max_turns=3, max_tokens=500, max_model_len=5000)
    played, *_ = await play_all(
        episode_specs(Problem("p", "41+58?"), chains=20), rules, scripted(random_policy)
    )
    assert {t.ending for t in played} == {Ending.TERMINAL, Ending.MAX_TURNS}
    assert max(len(t.turns) for t in played) == 3
