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
    """The four operations of Algorithm 1 on agents and results."""

    async def crossover(self, parent: AgentSpec, result: str) -> AgentSpec:
        """Return the parent, improved in view of its result."""

    async def mutation(
        self, parents: Sequence[AgentSpec], result: str, number: int
    ) -> AgentSpec | None:
        """Propose an agent that differs from its parents; None for an unreadable proposal.

        `number` counts the proposals from 1.
        """

    async def passes(self, child: AgentSpec, team: Sequence[AgentSpec]) -> bool:
        """Whether a child shares a skill with the team and differs from each agent of the team.

        The team contains the parents and the children accepted so far.
        """

    async def update(self, result: str, results: Sequence[str]) -> str:
        """Merge the earlier result with the results of all children."""


@dataclass(frozen=True)
class Evolution:
    """Algorithm 1: in each of `generations`, the parents propose `proposals` agents, and at most
    `children` of the proposed agents answer.

    `play` returns the result of an agent. The children are the first `children` proposals that pass
    the quality check; without `quality_check`, all readable proposals pass. Without `mutation`, the
    children are the parents after crossover.
    """

    operators: Operators
    play: Callable[[AgentSpec], Awaitable[str]]
    children: int = 1
    generations: int = 3
    proposals: int = 2
    quality_check: bool = True
    mutation: bool = True

    def calls(self, parents: int, turns: int = 1) -> int:
        """Return the largest number of replies in one generation.

        The generation has `parents` parents, and each child replies at most `turns` times.
        """
        proposed = self.proposals * (1 + self.quality_check) if self.mutation else 0
        return parents + proposed + self.children * turns + 1

    async def generation(
        self, parents: Sequence[AgentSpec], results: Sequence[str], result: str
    ) -> tuple[Sequence[AgentSpec], Sequence[str], str]:
        """Play one generation; return the children, their results, and the merged result.

        If all proposals are rejected, the lists are empty and the result is unchanged.
        """
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
