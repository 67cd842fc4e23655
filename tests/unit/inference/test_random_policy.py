"""The random policy makes only calls that the tools accept."""

import datetime
import decimal
import enum
import uuid
from collections import Counter
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agentfly_core.authoring.chat_template import Conversation, ToolSchema
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.authoring.tool_schema import Arguments
from agentfly_core.inference.random_policy import random_policy
from agentfly_core.records.trajectory import Ending, Message, Problem, ToolCall
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator
from tests.support.shipped import shipped_tools

DRAWS = 60
OBJECT = {"type": "object"}


class Colour(enum.Enum):
    RED = "red"
    NUMBER = 1


class Product(BaseModel):
    key: str
    price: Annotated[float, Field(ge=0, lt=1)]
    tags: list[str] = []


class Place(TypedDict):
    street: Annotated[str, Field(min_length=5, max_length=9)]
    number: NotRequired[int]


def choices(
    colour: Colour, unit: Literal["m", "km", 3], flag: bool, nothing: None, way: Literal["out"]
) -> None:
    """Choose."""


def ranges(
    count: Annotated[int, Field(ge=3, le=4)],
    even: Annotated[int, Field(gt=100, multiple_of=2)],
    share: Annotated[float, Field(gt=0, lt=0.001)],
    low: Annotated[int, Field(lt=-5)],
    half: Annotated[float, Field(ge=0.5, multiple_of=0.5)],
) -> None:
    """Count."""


def texts(
    name: Annotated[str, Field(min_length=3)],
    letter: Annotated[str, Field(max_length=1)],
    code: Annotated[str, Field(pattern="^[a-z]+[0-9]?$")],
) -> None:
    """Write."""


def times(
    day: datetime.date,
    moment: datetime.datetime,
    hour: datetime.time,
    lasting: datetime.timedelta,
    key: uuid.UUID,
    amount: decimal.Decimal,
) -> None:
    """Note."""


def lists(
    words: Annotated[list[str], Field(min_length=2, max_length=3)],
    pair: tuple[int, str],
    many: tuple[float, ...],
    distinct: Annotated[set[int], Field(min_length=2)],
    either: int | list[bool] | None,
) -> None:
    """List."""


def maps(
    counts: dict[str, int],
    by_unit: Annotated[dict[Literal["m", "km"], float], Field(min_length=1)],
    anything: Any,
    nested: dict[str, list[dict[str, bool]]],
) -> None:
    """Map."""


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


def bounded_text(key: Annotated[str, Field(min_length=2, max_length=2)]) -> None:
    """Take two letters."""


def numbered(
    code: Annotated[str, Field(pattern="^[A-Z]{3}[0-9]{4}$", examples=["ABC1234", "XYZ0042"])],
) -> None:
    """Find by a code that no word fits."""


ODD = [tool(f) for f in (choices, ranges, texts, times, lists, maps, records, optional)]
ODD += [tool(f) for f in (nothing, described, bounded_text, numbered)]


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


def coded(product: list[Annotated[str, Field(pattern="^[A-Z]{3}[0-9]{4}$")]] | None) -> None:
    """Find by a code without an example."""


def empty_range(count: Annotated[int, Field(ge=5, le=3)]) -> None:
    """Count in no range."""


def between_steps(share: Annotated[float, Field(gt=1, lt=9, multiple_of=10)]) -> None:
    """Count in no step."""


def long_and_short(name: Annotated[str, Field(min_length=5, max_length=3)]) -> None:
    """Write no name."""


def three_of_at_most_two(flags: Annotated[list[bool], Field(min_length=3, max_length=2)]) -> None:
    """List more than may be."""


def three_of_two(flags: Annotated[set[bool], Field(min_length=3)]) -> None:
    """List more than there are."""


@pytest.mark.parametrize(
    ("offered", "message"),
    [
        (
            coded,
            "product: nothing was found that fits {'pattern': '^[A-Z]{3}[0-9]{4}$'}. Give",
        ),
        (empty_range, "count: nothing was found that fits {'maximum': 3, 'minimum': 5}"),
        (between_steps, "share: nothing was found that fits {'exclusiveMaximum': 9, "),
        (long_and_short, "name: nothing was found that fits {'maxLength': 3, 'minLength': 5}"),
        (three_of_at_most_two, "flags: nothing was found that fits {'maxItems': 2, 'minItems': 3}"),
        (three_of_two, "flags: nothing was found that fits {'minItems': 3, 'uniqueItems': True"),
    ],
)
async def test_an_impossible_parameter_is_named_with_the_remedy(offered: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        for seed in range(DRAWS):
            await random_policy(conversation(seed, tool(offered)))
    text = str(refused.value)
    assert f"no call of the tool '{offered.__name__}': {message}" in text
    assert text.endswith("a policy of your own, --policy my_file:policy.")


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        ({"type": "array", "items": {}, "minItems": 2}, lambda value: 2 <= len(value) <= 4),
        ({"type": ["integer", "string"], "minimum": 7}, lambda value: value is not None),
        ({"type": "number", "minimum": 1e-5, "maximum": 2e-5}, lambda x: 1e-5 <= x <= 2e-5),
        ({"type": "integer", "exclusiveMinimum": 0.5, "maximum": 1}, lambda value: value == 1),
        ({"type": "string", "format": "email"}, lambda value: "@" in value),
        ({"type": "object", "minProperties": 1}, lambda value: 1 <= len(value) <= 3),
    ],
)
async def test_arguments_match_json_schemas(schema: Any, fits: Any) -> None:
    takes = ToolSchema("look", "Look.", {"properties": {"x": schema}, "required": ["x"]} | OBJECT)
    for seed in range(DRAWS):
        varied = replace(conversation(seed), tools=(takes,))
        reply = await random_policy(varied)
        assert fits(reply.calls[0].arguments["x"])  # type: ignore[union-attr]


async def test_a_map_has_up_to_two_entries() -> None:
    sizes = set()
    for seed in range(DRAWS):
        reply = await random_policy(conversation(seed, tool(maps)))
        sizes.add(len(reply.calls[0].arguments["counts"]))  # type: ignore[union-attr]
    assert sizes == {0, 1, 2}


async def test_tools_are_equally_likely_and_calls_reproducible() -> None:
    replies = [await random_policy(conversation(seed, *ODD[:4])) for seed in range(400)]
    counts = Counter(reply.calls[0].name for reply in replies)  # type: ignore[union-attr]
    assert counts.keys() == {"choices", "ranges", "texts", "times"}
    assert all(70 <= count <= 130 for count in counts.values())
    assert await random_policy(conversation(7, *ODD[:4])) == replies[7]


async def test_texts_are_words_of_the_conversation_and_short_literals() -> None:
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
