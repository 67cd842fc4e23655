"""A team that evolves from an agent, and self-refinement by the same proposals."""

from collections.abc import Awaitable, Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from agentfly_core import Ending, Episode, Message, Observation, Speaker
from agentfly_core.recipes.evolve.evolution import AgentSpec, Evolution
from agentfly_core.recipes.evolve.operators import PromptOperators, SymbolicOperators

TOOL_LOOP = "agentfly_core.agents.tool_loop:tool_loop"


class Member:
    """An episode as one agent of the team sees it: with a speaker of its own.

    `result` is the agent's answer, by default its last reply.
    """

    def __init__(self, episode: Episode, speaker: Speaker) -> None:
        self._episode, self._speaker, self._answer = episode, speaker, ""

    @property
    def opening(self) -> tuple[Message | Observation, ...]:
        """The problem; speakers have a system message of their own."""
        own = self._speaker is self._episode
        return self._episode.opening[bool(self._episode.rules.system and not own) :]

    def answer(self, text: str) -> None:
        """Set the result."""
        self._answer = text

    @property
    def result(self) -> str:
        """The answer, or else the last reply."""
        return self._answer or self._speaker.turns[-1].reply.content.strip()

    def __getattr__(self, name: str) -> Any:
        owner = self._speaker if hasattr(self._speaker, name) else self._episode
        return getattr(owner, name)


class Evolve:
    """EvoAgent: an agent answers, then `generations` of agents that evolve from it.

    `initial` is the import path of an agent with the episode's main speaker; list its file in
    `code_files`. Further agents run the same code as speakers `expert`, with the system messages of
    their specs; `skills` belong to the first one. The speaker `evolver` replies for the operators.
    With `pool` these are sets of skills. `Evolution` describes `children`, `proposals`,
    `quality_check` and `mutation`. A generation begins only if its replies fit into `budget`, with
    at most `expert_turns` of each expert.
    """

    def __init__(
        self,
        skills: Sequence[str],
        initial: str = TOOL_LOOP,
        children: int = 1,
        generations: int = 3,
        proposals: int = 2,
        quality_check: bool = True,
        mutation: bool = True,
        pool: Sequence[str] = (),
        budget: int = 100,
        expert_turns: int = 1,
    ) -> None:
        self.first = AgentSpec(role="the first agent", skills=tuple(skills))
        self.agent: Callable[[Any], Awaitable[Ending]] = resolve_name(initial)
        self.sizes = children, generations, proposals, quality_check, mutation
        self.pool, self.budget, self.expert_turns = pool, budget, expert_turns

    async def __call__(self, episode: Episode) -> Ending:
        first = Member(episode, episode)
        ending = await self.agent(first)
        if ending != Ending.NO_TOOL_CALLS:
            return ending
        episode.answer(await self.evolved(episode, first.result))
        return Ending.NO_TOOL_CALLS

    async def evolved(self, episode: Episode, result: str) -> str:
        """The merged result of all generations."""
        evolution = Evolution(self.operators(episode, result), self.player(episode), *self.sizes)
        parents: Sequence[AgentSpec] = [self.first]
        results: Sequence[str] = [result]
        for _ in range(evolution.generations):
            spent = sum(len(speaker.turns) for speaker in episode.speakers)
            if spent + evolution.calls(len(parents), self.expert_turns) > self.budget:
                break
            parents, results, result = await evolution.generation(parents, results, result)
            if not parents:
                break
        return result

    def operators(self, episode: Episode, result: str) -> PromptOperators:
        """Operators of the speaker `evolver`."""
        evolver = episode.speaker("evolver", max_turns=self.budget)
        question = episode.problem.prompt
        if self.pool:
            return SymbolicOperators(evolver, question, self.pool, f"{question} {result}")
        return PromptOperators(evolver, question)

    def player(self, episode: Episode) -> Callable[[AgentSpec], Awaitable[str]]:
        """Runs the initial agent's code with the instructions of a spec."""

        async def play(spec: AgentSpec) -> str:
            member = Member(
                episode,
                episode.speaker(
                    "expert",
                    system=spec.instructions,
                    tools=episode.rules.tools,
                    max_turns=self.expert_turns,
                ),
            )
            await self.agent(member)
            return member.result

        return play


class SelfRefine(Evolve):
    """The same proposals without crossover, selection and merging: each answer replaces the last.

    It makes one proposal and one answer as often as `budget` allows, from the first agent, or with
    `inherit` from the last one.
    """

    def __init__(self, skills: Sequence[str], inherit: bool = False, budget: int = 100) -> None:
        super().__init__(skills, budget=budget)
        self.inherit = inherit

    async def evolved(self, episode: Episode, result: str) -> str:
        operators, play = self.operators(episode, result), self.player(episode)
        agent = self.first
        for number in range(1, (self.budget - len(episode.turns)) // 2 + 1):
            if spec := await operators.mutation([agent], result, number):
                result = await play(spec)
                agent = spec if self.inherit else agent
        return result
