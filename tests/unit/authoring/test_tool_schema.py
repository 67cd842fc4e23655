"""Schemas of tools for the model, and warnings about them for the author."""

# No `from __future__ import annotations`: the types of these functions are made inside tests.

import json
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal, NotRequired, Union

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from agentfly_core import Problem, ToolCall, tool


def google(key: str, count: int = 1) -> None:
    """Find a product.

    By its key.

    Args:
        key: the product's
            key
        count (int): how many

    Returns:
        its name
    """


def numpy(key: str, count: int = 1) -> None:
    """Find a product.

    By its key.

    Parameters
    ----------
    key : str
        the product's
        key
    count : int, optional
        how many

    Returns
    -------
    str
        its name
    """


def sphinx(key: str, count: int = 1) -> None:
    """Find a product.

    By its key.

    :param key: the product's
        key
    :type key: str
    :param int count: how many
    :returns: its name
    """


def annotated(
    key: Annotated[str, Field(description="the product's key")],
    count: Annotated[int, Field(description="how many")] = 1,
) -> None:
    """Find a product.

    By its key.
    """


@pytest.mark.parametrize("function", [google, numpy, sphinx, annotated])
def test_descriptions_are_the_same_in_every_way_to_write_them(function: Any) -> None:
    assert tool(function).schema.description == "Find a product.\n\nBy its key."
    assert tool(function).schema.parameters == {
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "the product's key"},
            "count": {"type": "integer", "description": "how many", "default": 1},
        },
        "required": ["key"],
        "additionalProperties": False,
    }


def test_the_docstring_goes_before_the_annotation() -> None:
    def find(key: Annotated[str, Field(description="of the annotation", max_length=3)]) -> None:
        """Find.

        Args:
            key: of the docstring
        """

    told = tool(find).schema.parameters["properties"]["key"]
    assert told == {"type": "string", "maxLength": 3, "description": "of the docstring"}


def test_a_colon_and_a_ruler_in_the_text_do_not_make_it_another_style() -> None:
    def find(key: str) -> None:
        """Find: a product.

        Notes
        ---
        :key is no parameter of Sphinx.

        Args:
            key: the product's key
        """

    assert tool(find).schema.parameters["properties"]["key"]["description"] == "the product's key"
    assert tool(find).schema.description.endswith(":key is no parameter of Sphinx.")


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    """A place."""

    x: int
    title: str = "here"


class Line(BaseModel):
    start: Point
    end: Point = Field(description="where it ends")
    colour: Colour = Colour.RED


POINT = {
    "type": "object",
    "description": "A place.",
    "properties": {
        "x": {"type": "integer"},
        "title": {"type": "string", "default": "here"},
    },
    "required": ["x"],
}


def test_types_within_types_stand_where_they_are_used() -> None:
    def draw(lines: list[Line], at: Point) -> str:
        return f"{len(lines)} {at.x}"

    properties = tool(draw).schema.parameters["properties"]
    line = properties["lines"]["items"]
    assert properties["at"] == line["properties"]["start"] == POINT
    assert line["properties"]["end"] == {**POINT, "description": "where it ends"}
    assert line["properties"]["colour"] == {"type": "string", "enum": ["red"], "default": "red"}
    assert "$" not in json.dumps(tool(draw).schema.parameters)


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


async def test_one_of_several_types_is_told_without_references() -> None:
    def feed(pet: Annotated[Union[Cat, Dog], Field(discriminator="kind")]) -> str:  # noqa: UP007
        return type(pet).__name__

    told = tool(feed).schema.parameters["properties"]["pet"]
    kinds = [one["properties"]["kind"]["const"] for one in told["oneOf"]]
    assert (kinds, told.keys()) == (["cat", "dog"], {"oneOf"})
    answered = await tool(feed).answer(ToolCall("feed", {"pet": {"kind": "dog"}}), {})
    assert answered.content == "Dog"


class Product(TypedDict):
    """What is sold."""

    name: str
    tags: NotRequired[list[str]]


class Order(TypedDict, total=False):
    products: list[Product]
    note: str | None


async def test_a_typed_dict_is_a_parameter_like_others() -> None:
    def order(what: Order, more: list[Product] | None = None) -> str:
        """Order.

        Args:
            what: the order
        """
        return json.dumps(what)

    product = {
        "type": "object",
        "description": "What is sold.",
        "properties": {
            "name": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["name"],
        "additionalProperties": False,
    }
    properties = tool(order).schema.parameters["properties"]
    assert properties["what"]["properties"]["products"] == {"type": "array", "items": product}
    assert "required" not in properties["what"]
    assert properties["more"]["anyOf"][0] == {"type": "array", "items": product}
    sent = {"what": {"products": [{"name": "cup"}]}}
    answered = await tool(order).answer(ToolCall("order", sent), {})
    assert answered.content == '{"products": [{"name": "cup"}]}'
    wrong = await tool(order).answer(ToolCall("order", {"what": {"products": [{}]}}), {})
    assert wrong.content.startswith("what.products.0.name: Field required")


class Tree(BaseModel):
    children: list["Tree"]


class Chain(TypedDict):
    next: "Chain | None"


@pytest.mark.parametrize("kind", [Tree, Chain, list[Tree]])
def test_a_type_that_holds_itself_is_refused(kind: Any) -> None:
    def grow(tree: Any) -> None:
        """Grow."""

    grow.__annotations__["tree"] = kind
    with pytest.raises(ValueError, match=r"(Tree|Chain) contains itself"):
        _ = tool(grow).schema


def test_missing_descriptions_are_reported_to_the_author() -> None:
    @tool
    def find(key: str, count: int, problem: Problem) -> None:
        """Find a product.

        Args:
            kye: the product's key
            count: how many
            problem: what is asked
        """

    assert find.untold() == [
        "its parameter 'key' has no description: describe it in `Args` of the docstring, or with "
        "`Annotated[..., Field(description=...)]`.",
        "its docstring describes 'kye', which is no parameter. Did you mean 'key'?",
    ]


@pytest.mark.parametrize("function", [google, numpy, sphinx, annotated])
def test_a_tool_that_tells_all_has_nothing_untold(function: Any) -> None:
    assert tool(function).untold() == []
