"""Functions and objects that can be tools, and those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.records.trajectory import ToolCall, Trajectory


@tool
def sync_function(x: int) -> int:
    """Add one."""
    return x + 1


class Adder:
    """Add something."""

    def __init__(self, amount: int = 1) -> None:
        self.amount = amount

    @tool
    async def method(self, x: int) -> int:
        """Add by a method."""
        return x + self.amount

    def plain(self, x: int) -> int:
        return x + self.amount

    def __call__(self, x: int) -> int:
        return x + self.amount

    @staticmethod
    def static(x: int) -> int:
        return x + 1

    @classmethod
    async def of_class(cls, x: int) -> int:
        return x + 1


@pytest.mark.parametrize(
    "made",
    [
        sync_function,
        Adder().method,
        tool(Adder().plain),
        tool(Adder()),
        tool(Adder),
        tool(Adder.static),
        tool(Adder.of_class),
    ],
)
async def test_functions_methods_and_objects_are_tools(made: Tool) -> None:
    assert list(made.schema.parameters["properties"]) == ["x"]
    assert (await made.answer(ToolCall("any", {"x": "41"}), {})).content == "42"


async def test_each_instance_has_its_own_method_tool() -> None:
    for more, total in ((1, "2"), (10, "11")):
        assert (await Adder(more).method.answer(ToolCall("method", {"x": 1}), {})).content == total
    assert Adder(1).method.schema.description == "Add by a method."


def test_an_object_is_named_and_described_by_its_class() -> None:
    assert (tool(Adder).name, tool(Adder()).schema.description) == ("adder", "Add something.")


def test_a_tool_is_still_its_function() -> None:
    assert sync_function(1) == 2


def test_name_and_description_can_be_given() -> None:
    made = tool(name="plus", description="Say it so.")(sync_function.function)
    assert (made.schema.name, made.schema.description) == ("plus", "Say it so.")


def untyped(x) -> str:  # type: ignore[no-untyped-def]
    return str(x)


def as_trl(completions, **kwargs):  # type: ignore[no-untyped-def]
    return [0.0 for _ in completions]


def starred(*x: int) -> str:
    return str(x)


def odd(x: Callable[[], threading.Thread]) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(x)


def opaque(x: Opaque) -> str:
    return str(x)


class Opaque: ...


def nosy(trajectory: Trajectory) -> str:
    return trajectory.id


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (untyped, "'x' of untyped has no annotation"),
        (starred, r"starred has the parameter \*x"),
        (odd, "'threading' is not defined"),
        (opaque, "type without a JSON schema"),
        (nosy, "only rewards get"),
        (Adder.method.function, "'self' of method has no annotation"),
        (as_trl, "A reward takes `trajectory: Trajectory` and `problem: Problem`"),
    ],
)
def test_a_signature_that_cannot_be_told_is_refused(
    function: Callable[..., Any], told: str
) -> None:
    with pytest.raises(ValueError, match=told):
        _ = tool(function).schema


def test_a_tool_that_ends_the_episode_is_not_parallel() -> None:
    with pytest.raises(ValueError, match="parallel"):
        tool(parallel=True, ends_episode=True)
