"""Environments that write down what happens to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.records.trajectory import Problem

ONE, TWO = Problem("one", "?"), Problem("two", "?")


class Room(Environment):
    """Writes down what happens to it."""

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
