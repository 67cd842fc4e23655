"""Parts of an experiment that have settings of their own."""

import os
from dataclasses import replace
from typing import Literal

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import Tool, tool
from agentfly_core.records.trajectory import Ending, Message, Problem, Trajectory
from agentfly_core.rollout.episode import Episode

HERE = "tests.support.parts_with_settings"


@tool
class Search:
    """Find passages."""

    def __init__(self, index: str, results: int = 3, depth: int = 1) -> None:
        self.index, self.results = index, results

    async def __call__(self, query: str) -> str:
        return f"{self.results} of {self.index} for {query}"


def searches(indexes: list[str], of: str = "tools") -> list[Tool] | list[str]:
    """A tool for each index, or with another `of` the names of the indexes."""
    tools = [replace(Search.with_settings(index=one), name=f"search_{one}") for one in indexes]
    return tools if of == "tools" else indexes


@tool(process=True)
class Apart:
    """Say where it is done."""

    def __init__(self, mark: str = "!") -> None:
        self.mark = mark

    def __call__(self, text: str) -> str:
        return f"{text}{self.mark} {os.getpid()}"


@reward
class Shorter:
    def __init__(self, than: int, kind: Literal["turns", "tokens"] = "turns") -> None:
        self.than, self.kind = than, kind

    async def __call__(self, trajectory: Trajectory) -> float:
        turns, tokens = len(trajectory.turns), trajectory.sampled_tokens
        return float((turns if self.kind == "turns" else tokens) < self.than)


@reward(process=True)
class LongerThan:
    def __init__(self, than: int = 0) -> None:
        self.than = than

    def __call__(self, trajectory: Trajectory) -> float:
        if self.than < 0:
            raise ValueError(f"than is {self.than}")
        return float(trajectory.sampled_tokens > self.than)


@reward
class Clashes:
    def __init__(self, timeout: float = 1.0) -> None: ...

    async def __call__(self) -> float:
        return 0.0


class Shelf(Environment):
    def __init__(self, books: int = 2) -> None:
        self.books = books

    async def reset(self, problem: Problem) -> None: ...


@tool
async def count(*, shelf: Shelf) -> int:
    """Count the books."""
    return shelf.books


class Twice:
    def __init__(self, question: str = "Sure?") -> None:
        self.question = question

    async def __call__(self, episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.reply(Message("user", self.question))
        return Ending.NO_TOOL_CALLS
