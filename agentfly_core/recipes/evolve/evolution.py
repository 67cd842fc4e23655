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
    """The four operations of EvoAgent's Algorithm 1. A result is the answer text of an agent."""

    async def crossover(self, parent: AgentSpec, result: str) -> AgentSpec:
        """Return an improved version of the agent `parent`. `result` is the parent's answer."""

    async def mutation(
        self, parents: Sequence[AgentSpec], result: str, number: int
    ) -> AgentSpec | None:
        """Propose a new agent that differs from all parents. The first proposal has the number 1.

        `result` is the merged answer so far. Returns None if the proposal cannot be read.
        """

    async def passes(self, child: AgentSpec, team: Sequence[AgentSpec]) -> bool:
        """Whether a child shares a skill with the team and differs from each agent of the team.

        The team contains the parents and the children accepted so far.
        """

    async def update(self, result: str, results: Sequence[str]) -> str:
        """Merge `result`, the merged result so far, with the results of all children."""


@dataclass(frozen=True)
class Evolution:
    """EvoAgent's Algorithm 1: several generations of agents.

    In each generation, crossover improves the parents. Then mutation proposes `proposals` new
    agents from them. The first proposals that pass the quality check, at most `children` of them,
    become the children of this generation. Without `quality_check`, all readable proposals pass.
    The function `play` returns the result of a child. Without `mutation`, the children are the
    improved parents.
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
        """Play one generation. Return the children, their results, and the merged result.

        `results` has the result of each parent, and `result` is the merged result so far. If all
        proposals are rejected, both returned lists are empty and the merged result is unchanged.
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
