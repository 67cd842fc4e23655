"""EvoAgent's Algorithm 1 (arXiv 2406.14228). The answers of all agents are merged into one."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agentfly_core.recipes.evolve.operators import AgentSpec, PromptOperators


@dataclass(frozen=True)
class Evolution:
    """EvoAgent's Algorithm 1: several generations of agents.

    In each generation, crossover improves the parents. Then mutation proposes `proposals` new
    agents, based on the improved parents. The first `children` proposals that pass the quality
    check become the children. Without `quality_check`, all valid proposals pass. Without
    `mutation`, the improved parents become the children. The function `play` lets a child answer
    the problem, and returns the answer.
    """

    operators: PromptOperators
    play: Callable[[AgentSpec], Awaitable[str]]
    children: int = 1
    generations: int = 3
    proposals: int = 2
    quality_check: bool = True
    mutation: bool = True

    def calls(self, parents: int, turns: int = 1) -> int:
        """Return the largest possible number of replies in one generation.

        The generation has `parents` parents, and each child gives at most `turns` replies.
        """
        proposed = self.proposals * (1 + self.quality_check) if self.mutation else 0
        answered = self.children if self.mutation else parents
        return parents + proposed + answered * turns + 1

    async def generation(
        self, parents: Sequence[AgentSpec], results: Sequence[str], result: str
    ) -> tuple[Sequence[AgentSpec], Sequence[str], str]:
        """Make a generation. Return the children, their answers, and the new merged answer.

        `results` has the answer of each parent. `result` is the merged answer so far: the answer of
        the first agent, merged with the answers of all earlier generations. If all agents proposed
        by mutation are rejected, both returned lists are empty and the merged answer is unchanged.
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
