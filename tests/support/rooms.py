"""Environments that log their method calls."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, ClassVar, TypeVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.resources import ResourceManager

E = TypeVar("E", bound=Environment)

ONE, TWO = Problem("one", "?"), Problem("two", "?")


class Room(Environment):
    """Environment that logs its method calls."""

    made: ClassVar[list[Room]] = []

    def __init__(self) -> None:
        self.events: list[str] = []
        self.made.append(self)

    async def start(self) -> None:
        self.events.append("start")

    async def reset(self, problem: Problem) -> None:
        self.events.append(f"reset {problem.id}")

    async def close(self) -> None:
        self.events.append("close")


class Hall(Room): ...


class Once(Room):
    max_uses = 1


def broken(**methods: Callable[..., Any]) -> type[Room]:
    return type("Broken", (Room,), methods)


def events() -> list[list[str]]:
    return [room.events for room in Room.made]


@asynccontextmanager
async def lease(
    resources: ResourceManager,
    kind: type[E],
    problem: Problem,
    timeout: float,  # noqa: ASYNC109
    deadline: float = math.inf,
) -> AsyncIterator[E]:
    """An environment of one kind, for the block's duration."""
    async with resources.leases([kind], problem, timeout, deadline) as lent:
        environment = lent[kind]
        assert isinstance(environment, kind)
        yield environment
