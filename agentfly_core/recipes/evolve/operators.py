"""Operators that evolve a team of agents: they prompt a model, or combine sets of skills."""

import random
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from agentfly_core import Message, Speaker

SPEC = 'Reply with JSON alone: {"role": "expert in ...", "skills": ["...", "..."]}'
CROSSOVER = "Which skills should this agent have to do better? Keep those that helped."
MUTATION = (
    "Describe one further agent. It has the skills of one agent above and new ones that are "
    "missing."
)
CHECK = (
    "Does the new agent keep a skill of an agent above, and does it differ from each of them? "
    'Reply with JSON alone: {"keep": true, "reason": "..."}'
)
UPDATE = "Combine all answers into one. Reply with it alone."


class AgentSpec(BaseModel):
    """An agent of a team: `AgentSpec(role="expert in rhymes", skills=("rhymes", "metre"))`."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    role: str
    skills: tuple[str, ...]

    @property
    def instructions(self) -> str:
        """The agent's system message."""
        return f"You are {self.role}. Your skills: {', '.join(self.skills)}."


class QualityCheck(BaseModel):
    """A model's reply about a new agent: `{"keep": false, "reason": "It has no new skill."}`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    keep: bool
    reason: str


class PromptOperators:
    """The four operations of EvoAgent's Algorithm 1: `crossover`, `mutation`, `passes` (the quality
    check) and `update`.

    Each operation prompts the model (`speaker`) in a new context. An unreadable reply raises no
    error: `crossover` then returns its argument `parent` unchanged, `mutation` returns None, and
    `passes` returns False. `update` returns any reply as it is.
    """

    def __init__(self, speaker: Speaker, question: str) -> None:
        self.speaker, self.question = speaker, question

    async def crossover(self, parent: AgentSpec, result: str) -> AgentSpec:
        """Ask the model for better skills of the agent `parent`, and return the improved agent.

        `result` is the parent's answer.
        """
        prompt = f"{_listed([parent])}\nIts answer: {result}\n{CROSSOVER} {SPEC}"
        return _spec(await self._reply(prompt)) or parent

    async def mutation(
        self, parents: Sequence[AgentSpec], result: str, number: int
    ) -> AgentSpec | None:
        """Propose a new agent with the skills of one parent and with new skills.

        `result` is the team's answer so far. `number` counts the proposals from 1. Returns None if
        the model's reply cannot be read. The proposal may equal a parent.
        """
        prompt = (
            f"{_listed(parents)}\nThe answer so far: {result}\nProposal {number}. {MUTATION} {SPEC}"
        )
        return _spec(await self._reply(prompt))

    async def passes(self, child: AgentSpec, team: Sequence[AgentSpec]) -> bool:
        """Return whether the model accepts the new agent `child` for the team.

        The model is asked whether the new agent shares a skill with the team, and differs from each
        agent of the team. The team contains the parents and the children accepted so far.
        """
        prompt = f"{_listed(team)}\nNew agent: {child.model_dump_json()}\n{CHECK}"
        try:
            return QualityCheck.model_validate_json(await self._reply(prompt)).keep
        except ValidationError:
            return False

    async def update(self, result: str, results: Sequence[str]) -> str:
        """Prompt the model to merge answers, and return the merged answer.

        `result` is the merged answer so far. `results` has the answers of the children in the new
        generation.
        """
        answers = "\n".join(f"Answer: {one}" for one in (result, *results))
        return await self._reply(f"{answers}\n{UPDATE}")

    async def _reply(self, asked: str) -> str:
        text = f"Question: {self.question}\n{asked}"
        return (await self.speaker.context().reply(Message("user", text))).content.strip()


class SymbolicOperators(PromptOperators):
    """Operators that compute sets of skills. Only `update` prompts the model.

    `crossover` returns its argument `parent` unchanged. A mutation adds a random skill of `pool` to
    the skills of a random parent. A new agent passes the quality check if it shares a skill with an
    agent of the team, and no agent of the team has exactly the same skills.
    """

    def __init__(self, speaker: Speaker, question: str, pool: Sequence[str], seed: str) -> None:
        super().__init__(speaker, question)
        self.pool, self.draw = pool, random.Random(seed)

    async def crossover(self, parent: AgentSpec, result: str) -> AgentSpec:
        return parent

    async def mutation(self, parents: Sequence[AgentSpec], result: str, number: int) -> AgentSpec:
        skills = (*self.draw.choice(parents).skills, self.draw.choice(self.pool))
        return AgentSpec(role=f"expert in {skills[-1]}", skills=tuple(dict.fromkeys(skills)))

    async def passes(self, child: AgentSpec, team: Sequence[AgentSpec]) -> bool:
        sets = [{*agent.skills} for agent in team]
        return {*child.skills} not in sets and any({*child.skills} & one for one in sets)


def _listed(agents: Sequence[AgentSpec]) -> str:
    return "\n".join(f"Agent: {agent.model_dump_json()}" for agent in agents)


def _spec(text: str) -> AgentSpec | None:
    try:
        return AgentSpec.model_validate_json(text)
    except ValidationError:
        return None
