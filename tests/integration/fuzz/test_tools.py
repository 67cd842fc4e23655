"""2,000 tools of any signature and calls of any arguments: a schema or a refusal, and always an
observation.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import inspect
import json
import random
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, TypeVar, Union

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agentfly_core.authoring import tool as tools
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.records.trajectory import Observation, ToolCall
from tests.support.random_values import Values

SEED = 15


class Colour(enum.Enum):
    RED = "red"
    NUMBER = 1


class Product(BaseModel):
    key: str
    price: float = 0.0
    tags: list[str] = []


@dataclass
class Order:
    product: Product
    count: int = 1
    notes: list[str] = field(default_factory=list)


@dataclass
class Tree:
    value: int
    children: list[Tree]


class Place(TypedDict, total=False):
    street: str
    order: Order


class Opaque:
    """A class that pydantic cannot validate."""

    def __str__(self) -> str:
        return "opaque"


Key = NewType("Key", str)
T = TypeVar("T")
PLAIN = (
    str,
    int,
    float,
    bool,
    None,
    Any,
    object,
    bytes,
    datetime.datetime,
    decimal.Decimal,
    Path,
    uuid.UUID,
)
PLAIN += (
    Colour,
    Product,
    Order,
    Tree,
    Place,
    Key,
    list,
    dict,
    tuple,
    set,
    re.Pattern,
    datetime.timedelta,
)
PLAIN += (
    Annotated[int, Field(ge=0, le=9)],
    Annotated[str, Field(pattern="^a+$")],
    Literal["a", 1, None],
)
ODD = (
    Opaque,
    Callable[[int], str],
    complex,
    type,
    T,
    "int",
    "Missing",
    "list[Missing]",
    3,
    "",
    [int],
    ...,
)


def kind(draw: random.Random, depth: int = 0) -> Any:
    """The annotation of a parameter: plain, made of others, or odd."""
    if depth == 3 or draw.random() < 0.5:
        return draw.choice(PLAIN)
    if draw.random() < 0.06:
        return draw.choice(ODD)
    inner = kind(draw, depth + 1)
    if isinstance(inner, str | int | list) or inner is ...:
        return inner
    made: tuple[Callable[[], Any], ...] = (
        lambda: Optional[inner],  # noqa: UP045
        lambda: Union[inner, kind(draw, 3)],  # noqa: UP007
        lambda: list[inner],  # type: ignore[valid-type]
        lambda: dict[str, inner],  # type: ignore[valid-type]
        lambda: dict[int, inner],  # type: ignore[valid-type]
        lambda: tuple[inner, ...],  # type: ignore[valid-type]
        lambda: set[inner],  # type: ignore[valid-type]
        lambda: Annotated[inner, "a note"],
    )
    return draw.choice(made)()


DEFAULTS = (
    None,
    0,
    "",
    "x",
    1.5,
    float("nan"),
    float("inf"),
    [],
    {},
    {1: 2},
    {"a"},
    Colour.RED,
    Opaque(),
    b"\xff",
)
NAMES = (
    "key",
    "count",
    "a",
    "class_",
    "self",
    "name",
    "arguments",
    "model_config",
    "_hidden",
    "é",
    "x" * 300,
)
DOCS = (
    "",
    "Look up a product.",
    "Find it.\n\nArgs:\n    key: the product's key\n    count: how many\n",
)
DOCS += (
    "\0 \ud800 💥",
    "Args:\n    key (int, optional: what\n  Raises:\n",
    "x" * 5000,
    "Args:",
    '"""',
)


QUOTED = (
    "list[",
    "1/0",
    "Missing",
    "'int'",
    "dict.nothing",
    "int | 'x'",
    "",
    "lambda: 0",
    "await x",
    "[int]",
)


def quoted(annotation: str) -> Callable[..., Any]:
    """A function with an annotation that is still to be evaluated."""

    async def look_up(key: Any) -> Any:
        return key

    look_up.__annotations__["key"] = annotation
    return look_up


def made(draw: random.Random) -> Callable[..., Any]:
    """A function with a random signature that returns its arguments."""
    if draw.random() < 0.03:
        return quoted(draw.choice(QUOTED))

    async def given(**arguments: Any) -> Any:
        return arguments

    given.__signature__ = inspect.Signature(parameters(draw))  # type: ignore[attr-defined]
    given.__name__, given.__doc__ = (
        draw.choice(("look_up", "a", "buy-2", "look_up", "a", "buy-2", "é", "<lambda>")),
        draw.choice(DOCS),
    )
    return given


def parameters(draw: random.Random) -> list[inspect.Parameter]:
    """None to three parameters by keyword, some with a default, some without a type, some
    open-ended.
    """
    made = []
    for name in draw.sample(NAMES, draw.randrange(4)):
        annotation = kind(draw) if draw.random() < 0.98 else inspect.Parameter.empty
        default = draw.choice(DEFAULTS) if draw.random() < 0.3 else inspect.Parameter.empty
        made.append(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
            )
        )
    if draw.random() < 0.03:
        made.append(inspect.Parameter("more", inspect.Parameter.VAR_KEYWORD))
    return made


WORDS = (
    "",
    "a",
    "aaa",
    "red",
    "1",
    "1.5",
    "true",
    "null",
    "\0",
    "\ud800",
    "💥" * 50,
    "x" * 6000,
    "2026-11-23",
    "nan",
)
NUMBERS = (0, 1, -1, 9, 2**63, 10**50, -(10**90), 0.5, 1e308, 1e-300)


KEYS = (*NAMES, "key", "price", "product", "street", "order", "value", "children")
value = Values([NUMBERS, WORDS], lambda draw: draw.choice(KEYS))  # possible arguments from a model


def fitting(draw: random.Random, schema: Any, root: Any) -> Any:
    """A value that usually fits the schema."""
    if draw.random() < 0.05 or not isinstance(schema, dict):
        return value(draw)
    if "$ref" in schema:
        target = root.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
        return fitting(draw, target, root) if draw.random() < 0.7 else value(draw)
    for key in ("const", "default"):
        if key in schema:
            return schema[key]
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if options := schema.get("anyOf"):
        return fitting(draw, draw.choice(options), root)
    if schema.get("type") == "array":
        return [fitting(draw, schema.get("items", {}), root) for _ in range(draw.randrange(3))]
    if schema.get("type") == "object":
        return {
            name: fitting(draw, inner, root) for name, inner in schema.get("properties", {}).items()
        }
    samples = {
        "string": WORDS,
        "integer": NUMBERS[:7],
        "number": NUMBERS,
        "boolean": (True, False),
        "null": (None,),
    }
    return draw.choice(samples.get(schema.get("type", ""), NUMBERS))


def raised(error: BaseException) -> str:
    """Raise instead of reporting: every error of these tools is a fault of the product."""
    raise error


@pytest.fixture
def no_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let exceptions of tools through."""
    monkeypatch.setattr(tools, "fault", raised)


def schema_of(function: Callable[..., Any]) -> Tool | None:
    """The tool of a function, its schema checked; None where it is refused by a sentence that names
    the function.
    """
    try:
        made_tool = tool(function)
        schema = made_tool.schema
    except ValueError as error:
        assert type(error) is ValueError, (
            f"{inspect.signature(function)}: {type(error).__name__}: {error}"
        )
        assert function.__name__ in str(error), f"{inspect.signature(function)}: {error}"
        return None
    Draft202012Validator.check_schema(schema.parameters)
    assert json.loads(json.dumps(schema.parameters, allow_nan=False)) == schema.parameters
    return made_tool


@pytest.mark.usefixtures("no_boundary")
@pytest.mark.parametrize("cases", [200, pytest.param(1000, marks=pytest.mark.long)])
async def test_signatures_have_a_schema_or_are_refused(
    cases: int,
) -> None:
    draw, refused = random.Random(SEED), 0
    for _ in range(cases):
        if (made_tool := schema_of(made(draw))) is None:
            refused += 1
            continue
        for sent in (
            fitting(draw, made_tool.schema.parameters, made_tool.schema.parameters),
            value(draw),
            {},
        ):
            call = ToolCall(made_tool.name, sent if isinstance(sent, dict) else {"key": sent})
            answer = await made_tool.answer(call, {})
            assert isinstance(answer, Observation)
            assert len(answer.content.encode()) <= made_tool.max_chars + 100
    assert 0.05 * cases < refused < 0.6 * cases
