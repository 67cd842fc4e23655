from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from PIL import Image
from pydantic import AfterValidator, BaseModel

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.tool import Tool, ToolError, tool
from agentfly_core.records.trajectory import Observation, Problem, ToolCall


class Shelf(Environment):
    def __init__(self) -> None:
        self.items = {"a7": "red cup"}


@dataclass
class Box:
    width: int
    tags: list[str]


class Person(BaseModel):
    name: str
    age: int = 30


@tool
async def everything(
    text: str,
    number: int,
    mode: Literal["fast", "slow"],
    names: list[str],
    counts: dict[str, int],
    box: Box,
    person: Person,
    *,
    shelf: Shelf,
    problem: Problem,
    limit: int | None = None,
) -> str:
    """Do everything.

    At once.

    Args:
        text: the text,
            on two lines
        limit: how many
    """
    return f"{number + 1} {box.width} {person.age} {len(shelf.items)} {problem.id} {limit}"


ARGUMENTS = {
    "text": "x",
    "number": "41",
    "mode": "fast",
    "names": ["a"],
    "counts": {"a": "1"},
    "box": {"width": 3, "tags": []},
    "person": {"name": "Ada"},
}
LENT = {Shelf: Shelf(), Problem: Problem("add-1", "?")}


async def answer(asked: Tool, **arguments: Any) -> Observation:
    return await asked.answer(ToolCall(asked.name, arguments), LENT)


def test_the_schema_tells_the_signature_and_the_docstring() -> None:
    properties = everything.schema.parameters["properties"]
    assert (everything.schema.name, everything.schema.description) == (
        "everything",
        "Do everything.\n\nAt once.",
    )
    assert properties["text"] == {"type": "string", "description": "the text, on two lines"}
    assert properties["number"] == {"type": "integer"}
    assert properties["mode"] == {"type": "string", "enum": ["fast", "slow"]}
    assert properties["names"] == {"type": "array", "items": {"type": "string"}}
    assert properties["counts"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert properties["limit"] == {
        "anyOf": [{"type": "integer"}, {"type": "null"}],
        "default": None,
        "description": "how many",
    }
    assert everything.schema.parameters["required"] == [
        "text",
        "number",
        "mode",
        "names",
        "counts",
        "box",
        "person",
    ]
    assert properties["box"] == {
        "type": "object",
        "properties": {
            "width": {"type": "integer"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["width", "tags"],
        "additionalProperties": False,
    }
    assert "$defs" not in everything.schema.parameters
    json.dumps(everything.schema.parameters, allow_nan=False)


def test_what_is_lent_is_hidden_from_the_schema() -> None:
    assert everything.signature.lent == {"shelf": Shelf, "problem": Problem}
    assert not {"shelf", "problem"} & set(everything.schema.parameters["properties"])


async def test_arguments_are_coerced_to_their_types() -> None:
    assert await answer(everything, **ARGUMENTS) == Observation(
        "everything", "42 3 30 1 add-1 None"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "text: Field required"),
        ({**ARGUMENTS, "number": "many"}, "number: Input should be a valid integer"),
        ({**ARGUMENTS, "mode": "medium"}, "mode: Input should be 'fast' or 'slow'"),
        ({**ARGUMENTS, "nmaes": []}, "there is no argument 'nmaes'. Did you mean 'names'?"),
        ({**ARGUMENTS, "shelf": "mine"}, "there is no argument 'shelf'"),
        ({**ARGUMENTS, "problem": {"id": "easy"}}, "there is no argument 'problem'"),
        (
            {**ARGUMENTS, "box": {"width": "wide", "tags": []}},
            "box.width: Input should be a valid integer",
        ),
        ({**ARGUMENTS, "number": "9" * 5000}, "number: Unable to parse input string as an integer"),
    ],
)
async def test_wrong_arguments_are_an_error_observation_with_the_schema(
    arguments: dict[str, Any], told: str
) -> None:
    observation = await answer(everything, **arguments)
    assert observation.error
    assert told in observation.content
    assert '"properties"' in observation.content


async def test_a_number_is_taken_where_text_is_asked() -> None:
    @tool
    async def echo(text: str) -> str:
        return text

    assert (await answer(echo, text=5)).content == "5"


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("plain", "plain"),
        (99, "99"),
        (0.5, "0.5"),
        (None, "null"),
        (True, "true"),
        (["é", 1], '["é", 1]'),
        ({"a": [Box(1, ["x"])]}, '{"a": [{"width": 1, "tags": ["x"]}]}'),
        (Person(name="Ada"), '{"name": "Ada", "age": 30}'),
        (float("nan"), "NaN"),
        (np.int64(7), "7"),
        (np.array([1, 2]), "[1, 2]"),
        (np.ones((1, 1, 3)), "[[[1.0, 1.0, 1.0]]]"),
        (b"caf\xc3\xa9", "café"),
        ("half \ud83d pair", "half ? pair"),
        ({"half": "\ud83d"}, '{"half": "?"}'),
    ],
)
async def test_a_tool_may_return_almost_anything(result: Any, text: str) -> None:
    @tool
    def give() -> Any:
        return result

    assert await answer(give) == Observation("give", text)


async def test_bytes_that_are_no_text_are_reported_to_the_author_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def shot() -> bytes:
        return b"ok\xff\x00"

    told = "The result (4 bytes) is not UTF-8 text: invalid start byte at byte 2."
    assert [await answer(shot) for _ in range(2)] == [Observation("shot", told, error=True)] * 2
    assert len(caplog.messages) == 1
    assert "The tool 'shot' returned bytes that are not UTF-8" in caplog.text
    assert "`data.decode(errors='replace')`" in caplog.text


@pytest.mark.parametrize("wrap", [lambda data: {"img": data}, lambda data: [Box(1, [data])]])
async def test_nested_bytes_that_are_no_text_are_reported_like_bare_ones(
    wrap: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    @tool(name=f"shot_{type(wrap(b'')).__name__}")
    def shot() -> Any:
        return wrap(b"\x89ZIP")

    found = await answer(shot)
    assert found.error
    assert found.content.startswith("The result (4 bytes) is not UTF-8 text: invalid ")
    assert "returned bytes that are not UTF-8" in caplog.text


@pytest.mark.parametrize(
    "wrap",
    [
        lambda picture: picture,
        lambda picture: {"seen": [picture]},
        lambda picture: Box(1, [picture]),
        lambda picture: Person.model_construct(name=picture, age=30),
    ],
)
async def test_a_picture_fails_the_episode_and_is_not_shown_as_its_name(
    wrap: Callable[[Any], Any],
) -> None:
    @tool
    def plot() -> Any:
        return wrap(Image.new("RGB", (2, 2)))

    with pytest.raises(ServiceFailure, match=r"'plot' .*\(Image\)"):
        await answer(plot)


async def test_a_long_observation_keeps_its_head_and_its_tail() -> None:
    @tool(max_chars=10)
    async def read() -> str:
        return "head " + "x" * 90 + " tail"

    assert (await answer(read)).content == "head \n[... 90 bytes omitted ...]\n tail"


class Mute(ToolError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def failing(error: Exception) -> Callable[[], str]:
    def fails() -> str:
        raise error

    return fails


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ToolError("No product has the key 'b9'."), "No product has the key 'b9'."),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (StopIteration(), "RuntimeError: coroutine raised StopIteration"),
        (RecursionError("too deep"), "RecursionError: too deep"),
        (ValueError("half \ud83d pair"), "ValueError: half ? pair"),
        (Mute(), "str() failed with RuntimeError"),
        (ToolError(), "ToolError, without a message"),
    ],
)
async def test_what_the_call_caused_is_told_to_the_model(error: Exception, text: str) -> None:
    assert await answer(tool(failing(error))) == Observation("fails", text, error=True)


async def test_a_tool_that_ends_the_program_only_ends_its_call() -> None:
    @tool
    async def quits() -> None:
        raise SystemExit(1)

    assert await answer(quits) == Observation(
        "quits", "RuntimeError: it called exit(1)", error=True
    )


async def test_an_argument_that_breaks_its_own_check_is_told_to_the_model() -> None:
    @dataclass
    class Page:
        number: int

        def __post_init__(self) -> None:
            self.title = {1: "start"}[self.number]

    @tool
    async def turn(page: Page) -> str:
        return page.title

    turn.function.__annotations__["page"] = Page
    assert await answer(turn, page={"number": 7}) == Observation("turn", "KeyError: 7", error=True)


async def test_a_result_that_cannot_be_written_is_told_to_the_model() -> None:
    class Odd:
        def __str__(self) -> str:
            raise SystemExit(1)

    @tool
    async def odd() -> Any:
        return Odd()

    assert await answer(odd) == Observation("odd", "SystemExit: 1", error=True)


async def test_a_tool_that_takes_too_long_is_told_so() -> None:
    @tool(timeout=0.01)
    async def hangs() -> None:
        await asyncio.Event().wait()

    assert await answer(hangs) == Observation("hangs", "no result within 0.01 s", error=True)


async def test_a_failed_service_is_retried_and_hidden_from_the_model() -> None:
    calls = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ServiceFailure("connection lost")
        return "ok"

    assert (await answer(tool(retries=2)(flaky))).content == "ok"
    calls.clear()
    with pytest.raises(ServiceFailure, match="connection lost"):
        await answer(tool(retries=1)(flaky))
    assert len(calls) == 2


async def test_a_models_mistake_is_not_tried_again() -> None:
    calls = []

    def wrong() -> str:
        calls.append(1)
        raise ToolError("no")

    await answer(tool(retries=5)(wrong))
    assert len(calls) == 1


async def test_a_missing_environment_is_our_mistake_and_not_the_models() -> None:
    with pytest.raises(KeyError):
        await everything.answer(ToolCall("everything", ARGUMENTS), {})


def _refused(word: str) -> str:
    raise KeyError(word)


@tool
async def picky(word: Annotated[str, AfterValidator(_refused)]) -> str:
    """Take a word."""
    return word


async def test_errors_of_argument_types_are_reported_to_the_model() -> None:
    assert await picky.answer(ToolCall("picky", {"word": "x"}), {}) == Observation(
        "picky", "KeyError: 'x'", error=True
    )
