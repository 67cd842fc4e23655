"""Defaults that reach a tool, results that it may return, and functions that return none."""

import asyncio
import functools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from itertools import count
from typing import Annotated, Any

import pytest
from pydantic import Field

from agentfly_core.authoring.author_part import made
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.config.import_path import check_settings
from agentfly_core.records.trajectory import ToolCall, Trajectory

Positive = Annotated[int, Field(ge=1)]


async def answer(made: Tool, **arguments: Any) -> str:
    return (await made.answer(ToolCall(made.name, arguments), {})).content


@tool
def page(
    n: int = Field(3, ge=1, description="lines"),
    tags: list[str] = Field(default_factory=list),  # noqa: B008
    key: str = Field(...),
) -> Any:
    return [n, tags, key]


async def test_a_pydantic_field_as_default_is_resolved() -> None:
    assert await answer(page, key="a") == '[3, [], "a"]'
    assert page.schema.parameters["required"] == ["key"]
    assert page.schema.parameters["properties"]["n"] == {
        "default": 3,
        "description": "lines",
        "minimum": 1,
        "type": "integer",
    }
    assert "greater than or equal to 1" in await answer(page, n=0, key="a")


async def test_a_parameter_with_the_default_none_takes_null() -> None:
    @tool
    def lines(n: int = None, m: Positive = None) -> str:  # type: ignore[assignment]  # noqa: RUF013
        return f"{n} {m}"

    assert await answer(lines, n=None, m=None) == "None None"
    assert await answer(lines, n=4) == "4 None"
    assert (await answer(lines, m=0)).startswith("m: Input should be greater than or equal to 1")


async def test_a_mutable_default_is_copied_for_each_call() -> None:
    @tool
    def note(text: str, notes: list[str] = []) -> Any:  # noqa: B006
        notes.append(text)
        return notes

    assert await answer(note, text="a") == '["a"]'
    assert await answer(note, text="b") == '["b"]'


async def test_an_immutable_default_keeps_its_identity() -> None:
    missing = object()

    @tool
    def look(key: Any = missing) -> bool:
        return key is missing

    assert await answer(look) == "true"


async def test_environments_share_no_default_and_no_setting() -> None:
    class Shop(Environment):
        def __init__(self, seen: list[str], stock: list[str] = []) -> None:  # noqa: B006
            self.held = seen, stock

    seen = list[str]()
    one, two = [await made(Shop, {"seen": seen}, 5.0) for _ in range(2)]
    for held in one.held:
        held.append("red cup")
    assert two.held == ([], [])


def find(store: str, key: str, limit: int = 5) -> str:
    """Find a product.

    Args:
        store: the shop
        key: its key
        limit: most results
    """
    return f"{store} {key} {limit}"


async def test_a_partial_is_described_by_its_function() -> None:
    found = tool(functools.partial(find, "cups", limit=2))
    assert (found.name, found.schema.description) == ("find", "Find a product.")
    assert [*found.schema.parameters["properties"]] == ["key"]
    assert found.untold() == []
    assert await answer(found, key="a") == "cups a 2"


def lines() -> Iterator[str]:
    yield "a"


async def replies() -> AsyncIterator[str]:
    yield "a"


class Pages:
    def __call__(self) -> Iterator[str]:
        yield "a"


@pytest.mark.parametrize(
    "function",
    [lines, replies, Pages, Pages(), functools.partial(lines), functools.cache(lines)],
)
@pytest.mark.parametrize("decorate", [tool, reward])
def test_generator_functions_are_refused_where_they_are_decorated(
    decorate: Callable[..., object], function: Callable[..., object]
) -> None:
    with pytest.raises(ValueError, match=r"(tool|reward) '\w+' .*generator function"):
        decorate(function)


@pytest.mark.parametrize("decorate", [tool, reward])
def test_a_cached_coroutine_function_is_refused(decorate: Callable[..., object]) -> None:
    async def score(trajectory: Trajectory) -> float:
        return 1.0

    with pytest.raises(ValueError, match=r"'score' is a cached `async def`"):
        decorate(functools.cache(score))


class Product: ...


async def coroutine() -> str:
    return "a"


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (Product, "Product"),
        (lambda: [Product()], "Product"),
        (lambda: lambda: None, "function"),
        (lambda: iter([1]), "list_iterator"),
        (lambda: {"rows": map(str, [1])}, "map"),
        (lambda: count(1), "count"),
        (replies, "async_generator"),
        (lambda: sqlite3.connect(":memory:").execute("select 1"), "Cursor"),
    ],
)
async def test_a_result_without_text_is_an_error_that_names_the_tool(
    result: Callable[[], object], kind: str
) -> None:
    @tool
    def look() -> object:
        return result()

    with pytest.raises(ServiceFailure) as error:
        await answer(look)
    assert str(error.value).startswith(
        f"The tool 'look' returned a value without a text form ({kind}): return "
    )


async def test_a_coroutine_in_a_result_has_no_textual_form() -> None:
    reply = coroutine()

    @tool
    def look() -> object:
        return [reply]

    with closing(reply), pytest.raises(ServiceFailure, match=r"'look' .* text form \(coroutine\)"):
        await answer(look)


async def test_a_future_in_a_result_has_no_textual_form() -> None:
    @tool
    async def look() -> object:
        return [asyncio.gather()]

    with pytest.raises(ServiceFailure, match=r"'look' .* text form \(Future\)"):
        await answer(look)


@pytest.mark.parametrize("name", ["", "look up", "search.web", "größe", "a" * 65, "<lambda>"])
def test_a_tool_name_that_services_refuse_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="services refuse"):
        tool(name=name or "ends with newline\n")(find)


@pytest.mark.parametrize("name", ["look-up_2", "a" * 64])
def test_a_tool_name_that_services_take_is_taken(name: str) -> None:
    assert tool(name=name)(find).schema.name == name


def test_a_setting_whose_default_is_a_pydantic_field_is_refused() -> None:
    def dataset(seed: int, rows: int = Field(3)) -> None: ...

    with pytest.raises(ValueError, match="'rows' is a pydantic"):
        check_settings(dataset, {}, ["seed"])


def test_a_setting_with_the_default_none_takes_null() -> None:
    def dataset(rows: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert check_settings(dataset, {"rows": None}) == {"rows": None}
