"""An agent's episode that starts again from its beginning."""

import asyncio
from collections.abc import Sequence

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request
from agentfly_core.records.trajectory import Ending, Message, Problem, Sampled, ToolCall, Trajectory
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.rollout.rules import StartAgain
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec
from agentfly_core.testing.letters import STOP, encode


class Counter(Environment):
    async def reset(self, problem: Problem) -> str:
        self.count = 0
        return "0 so far"


@tool
async def up(*, counter: Counter) -> int:
    """Count."""
    counter.count += 1
    return counter.count


class Seeds(TransformersSampler):
    """Replies with its seed, once every open branch has a request."""

    async def reply(self, requests: Sequence[Request]) -> list[Sampled]:
        rows = [(*encode(str(one.conversation.seed % 1000)), STOP) for one in requests]
        return [Sampled(tokens, (0.0,) * len(tokens), 7, "stop") for tokens in rows]


def dying(deaths: int) -> Agent:
    """An agent whose program is killed in its first plays of the problem `unlucky`."""
    plays: list[str] = []

    async def agent(episode: Episode) -> Ending:
        async def request(text: str) -> None:
            async with episode.branch():
                await episode.turn([Message("user", text)])

        plays.append(episode.problem.id)
        await episode.turn(episode.opening)
        (count,) = await episode.call(ToolCall("up", {}))
        if plays.count("unlucky") <= deaths and episode.problem.id == "unlucky":
            episode.answer("lost")
            raise StartAgain("The program was killed by signal 9.")
        await asyncio.gather(request("A?"), request(count.content))
        return Ending.NO_TOOL_CALLS

    return agent


async def played(deaths: int) -> list[Trajectory]:
    rules = rollout_spec(up, agent=dying(deaths), limits={Counter: 2}, max_turns=9)
    specs = episode_specs(Problem("unlucky", "1?"), ADD)
    return (await play_all(specs, rules, Seeds()))[0]


async def test_an_episode_that_starts_again_is_played_as_if_at_once() -> None:
    assert await played(deaths=1) == await played(deaths=0)
    unlucky = (await played(deaths=1))[1]
    assert (unlucky.ending, len(unlucky.turns), unlucky.answered) == (
        Ending.NO_TOOL_CALLS,
        3,
        None,
    )
    assert {turn.read[-1].content for turn in unlucky.turns[1:]} == {"A?", "1"}


async def test_an_episode_that_starts_again_twice_fails() -> None:
    added, unlucky = await played(deaths=2)
    assert added.ending is Ending.NO_TOOL_CALLS
    assert (unlucky.ending, unlucky.error) == (
        Ending.FAILED,
        "StartAgain: The program was killed by signal 9.",
    )
