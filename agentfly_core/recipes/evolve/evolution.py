"""EvoAgent's Algorithm 1 (arXiv 2406.14228): generations of agents with merged results."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pydantic import BaseModel, ConfigDict


class AgentSpec(BaseModel):
    """An agent of a team: `AgentSpec(role="expert in rhymes", skills=("rhymes", "metre"))`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    role: str
    skills: tuple[str, ...]

    @property
    def instructions(self) -> str:
        """The agent's system message."""
        return f"You are {self.role}. Your skills: {', '.join(self.skills)}."


class Operators(Protocol):
    """The four operations on agents and results."""

    async def crossover(self, parent: AgentSpec, result: str) -> AgentSpec:
        """The parent, improved in view of its result."""

    async def mutation(
        self, parents: Sequence[AgentSpec], result: str, number: int
    ) -> AgentSpec | None:
        """Proposal `number` of an agent that differs from its parents; None if unreadable."""

    async def passes(self, child: AgentSpec, team: Sequence[AgentSpec]) -> bool:
        """Whether a child keeps a skill of the parents and children so far and differs from all."""

    async def update(self, result: str, results: Sequence[str]) -> str:
        """The earlier result merged with the results of all children."""


@dataclass(frozen=True)
class Evolution:
    """`generations` times, parents propose `proposals` agents, and `children` of these answer.

    `play` returns the result of an agent. The first `children` proposals that pass the quality
    check are selected, without `quality_check` the first ones. Without `mutation` the children are
    their parents after crossover.
    """

    operators: Operators
    play: Callable[[AgentSpec], Awaitable[str]]
    children: int = 1
    generations: int = 3
    proposals: int = 2
    quality_check: bool = True
    mutation: bool = True

    def calls(self, parents: int, turns: int = 1) -> int:
        """The largest number of replies of one generation, if an agent has `turns` replies."""
        proposed = self.proposals * (1 + self.quality_check) if self.mutation else 0
        return parents + proposed + self.children * turns + 1

    async def generation(
        self, parents: Sequence[AgentSpec], results: Sequence[str], result: str
    ) -> tuple[Sequence[AgentSpec], Sequence[str], str]:
        """The children, their results, and the merged result; no children if all are rejected."""
        pairs = zip(parents, results, strict=True)
        parents = [await self.operators.crossover(*pair) for pair in pairs]
        children = await self._proposed(parents, result) if self.mutation else parents
        if not children:
            return (), (), result
        results = [await self.play(child) for child in children]
        return children, results, await self.operators.update(result, results)

    async def _proposed(self, parents: Sequence[AgentSpec], result: str) -> list[AgentSpec]:
        numbers = range(1, self.proposals + 1)
        drawn = [await self.operators.mutation(parents, result, number) for number in numbers]
        children = list[AgentSpec]()
        for proposal in drawn:
            if proposal and await self._passes(proposal, [*parents, *children]):
                children.append(proposal)
        return children[: self.children]

    async def _passes(self, proposal: AgentSpec, team: Sequence[AgentSpec]) -> bool:
        return not self.quality_check or await self.operators.passes(proposal, team)
