"""Agents that improve an answer with a team (`Evolve`) or by self-refinement (`SelfRefine`)."""

from collections.abc import Awaitable, Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from agentfly_core import Ending, Episode, Message, Observation, Speaker
from agentfly_core.recipes.evolve.evolution import Evolution
from agentfly_core.recipes.evolve.operators import AgentSpec, PromptOperators, SymbolicOperators

TOOL_LOOP = "agentfly_core.agents.tool_loop:tool_loop"


class Member:
    """A stand-in for the episode that is passed to the code of an agent of `Evolve`.

    Replies come from the agent's own speaker, i.e. its own conversation. The method `answer` sets
    `result`, and leaves the answer of the episode unchanged. All other attributes are those of the
    speaker or, if the speaker lacks them, of the episode.
    """

    def __init__(self, episode: Episode, speaker: Speaker) -> None:
        self._episode, self._speaker = episode, speaker
        self._answer: str | None = None

    @property
    def opening(self) -> tuple[Message | Observation, ...]:
        """The first messages of the episode.

        For every agent except the first, the episode's system message is left out, because each of
        these agents has its own system message.
        """
        own = self._speaker is self._episode
        return self._episode.opening[bool(self._episode.rules.system and not own) :]

    def answer(self, text: str) -> None:
        """Set `result` to this text."""
        self._answer = text

    @property
    def result(self) -> str:
        """The agent's answer: the last text set with `answer`, or else the agent's last reply."""
        if self._answer is None:
            return self._speaker.turns[-1].reply.content.strip()
        return self._answer

    def __getattr__(self, name: str) -> Any:
        owner = self._speaker if hasattr(self._speaker, name) else self._episode
        return getattr(owner, name)


class Evolve:
    """EvoAgent: a first agent answers, then several generations of agents evolve from it.

    `initial` is the import path of the first agent's code, and `skills` are the first agent's
    skills. The first agent uses the episode's main conversation. Each other agent runs the same
    code in its own conversation (role `expert`), and gives at most `expert_turns` replies. The
    system message of an expert names a role and skills (see `AgentSpec`). List the file with the
    first agent's code in the setting `code_files`.

    The model in the role `evolver` proposes agents, checks them and merges answers (see
    `PromptOperators`). If `pool` (a list of skills) is set, a new agent gets the skills of a parent
    and a random skill of the list, and fixed rules check the new agent. The role `evolver` then
    only merges answers (see `SymbolicOperators`). `children`, `generations`, `proposals`,
    `quality_check` and `mutation` are explained in `Evolution`. `budget` is the maximum number of
    replies in an episode. A generation begins only if its replies cannot exceed this maximum.
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
        """Run the generations of the evolution, and return one answer, merged from all answers.

        `result` is the answer of the first agent. The first agent is the parent of the first
        generation.
        """
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
        """Make the operators of the evolution (crossover, mutation, quality check and update).

        All operators prompt one new speaker of the role `evolver`. With the setting `pool` (a list
        of skills), only the update, which merges the answers, prompts this speaker. The mutation
        then adds a random skill. The random seed depends on `result`, the first agent's answer.
        """
        evolver = episode.speaker("evolver", max_turns=self.budget)
        question = episode.problem.prompt
        if self.pool:
            return SymbolicOperators(evolver, question, self.pool, f"{question} {result}")
        return PromptOperators(evolver, question)

    def player(self, episode: Episode) -> Callable[[AgentSpec], Awaitable[str]]:
        """Make a function that lets a new agent answer the problem, and returns the answer.

        The function's argument describes the new agent's role and skills. The new agent has the
        same code as the first agent. Its replies come from a new speaker of the role `expert`.
        """

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
    """A baseline for `Evolve`, without crossover, selection and merging.

    In each round, the model in the role `evolver` proposes a new agent, and this agent answers the
    problem. The new answer replaces the previous answer. `budget` is the maximum number of replies
    in an episode. The loop ends when fewer than two replies are left. Each proposal is based on the
    first agent or, with `inherit`, on the latest proposed agent.
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
