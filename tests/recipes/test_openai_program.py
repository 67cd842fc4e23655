"""A program that knows only OpenAI's client plays as the tool loop does."""

import random
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from agentfly_core.agents.program import FunctionProgram, ProgramAgent
from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.inference.sampler import Request, SamplerSession
from agentfly_core.recipes.openai_program import calculator_agent
from agentfly_core.recipes.openai_program.calculator_agent import TOOLS, calculate, solve
from agentfly_core.records.trajectory import BadCall, Problem, Sampled, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.rollout.episode import Agent
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.tools.answer import answer
from agentfly_core.tools.calculator import calculator

PROBLEMS = [Problem(f"add-{n}", f"{n}+{n}?", {"answer": str(2 * n)}) for n in range(40)]


async def drawn(conversation: Conversation) -> str:
    """A reply that depends on the seed and on the last message."""
    draw, last = random.Random(conversation.seed), conversation.messages[-1].content
    number = (re.findall(r"\d+", last) or ["1"])[0]
    replies = [
        f"<calculator expression={number}+{number}>",
        f"<calculator expression={draw.randrange(99)}*{draw.randrange(99)}>",
        f"<answer answer={last.replace(' ', '')}>",
        f"  It is {last}. ",
        "<calculator",
    ]
    return draw.choices(replies, [4, 2, 2, 1, 1])[0]


class Measured:
    """The policy `drawn` with log-probabilities that depend on prompt and seed."""

    def __init__(self) -> None:
        self.inner = scripted(drawn)

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        yield _MeasuredSession(self.inner)


class _MeasuredSession(SamplerSession):
    def __init__(self, inner: SamplerSession) -> None:
        self.inner = inner

    async def sample(self, request: Request) -> Sampled:
        sampled = await self.inner.sample(request)
        draw = random.Random(f"{request.prompt} {request.conversation.seed}")
        return replace(sampled, logprobs=tuple(-draw.random() for _ in sampled.tokens))


async def played(agent: Agent, *problems: Problem, **rules: Any) -> list[Trajectory]:
    """Episodes of an agent, one call at a time."""
    sampler: Any = Measured()
    spec = rollout_spec(calculator, answer, agent=agent, **rules)
    return [
        (await play_all([episode], spec, sampler))[0][0]
        for episode in episode_specs(*problems, chains=2)
    ]


def tokens(trajectory: Trajectory) -> list[Any]:
    return [(turn.given, turn.sampled, turn.context) for turn in trajectory.turns]


def test_the_program_has_the_tools_of_the_quickstart():
    assert [calculator.schema.listed, answer.schema.listed] == TOOLS


async def test_the_tool_loop_and_the_client_have_equal_episodes():
    compared, endings = 0, set()
    loop = await played(tool_loop, *PROBLEMS)
    client = await played(FunctionProgram(solve), *PROBLEMS)
    for ours, theirs in zip(loop, client, strict=True):
        calls = [call for turn in ours.turns for call in turn.reply.calls]
        if any(isinstance(call, BadCall) for call in calls):
            continue
        compared, endings = compared + 1, endings | {ours.ending}
        assert tokens(ours) == tokens(theirs)
        assert ours.seed == theirs.seed
        text = [None if one.answer is None else one.answer.strip() for one in (ours, theirs)]
        assert text[0] == text[1]
        assert await exact.score(ours, {}) == await exact.score(theirs, {})
    assert compared > 30
    assert {ending.value for ending in endings} == {"terminal", "no_tool_calls", "max_turns"}


@pytest.mark.slow
async def test_the_program_in_a_process_plays_as_its_function():
    program = ProgramAgent((sys.executable, calculator_agent.__file__))
    by_function = await played(FunctionProgram(solve), *PROBLEMS[:2])
    in_process = await played(program, *PROBLEMS[:2])
    assert [tokens(one) for one in in_process] == [tokens(one) for one in by_function]
    assert [str(one.answer).strip() for one in by_function] == [one.answer for one in in_process]


@pytest.mark.parametrize(
    ("expression", "result"),
    [("41+58", "99"), ("-4*5", "-20"), ("4-5", "-1"), ("4/5", "is not a sum"), ("", "is not a")],
)
def test_the_calculator_works_out_two_integers(expression, result):
    assert result in calculate(expression)
