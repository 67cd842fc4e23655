"""Snapshots of an episode's environments."""

import pytest

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Ending, Message, Problem, ToolCall
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from tests.support.counting import Count
from tests.support.policies import numbered


class Pages(Count):
    pass


class Fixed(Environment):
    async def reset(self, problem: Problem) -> None:
        pass


@tool
async def turn_page(*, count: Count, pages: Pages) -> str:
    """Turn."""
    count.count += 1
    pages.count += 10
    return f"{count.count} {pages.count}"


@tool
async def look(*, fixed: Fixed) -> str:
    """Look."""
    return "fixed"


async def test_all_environments_go_back_and_a_conversation_branches() -> None:
    async def agent(episode: Episode) -> Ending:
        begun = [*episode.opening, await episode.reply(*episode.opening)]
        await episode.call(ToolCall("turn_page", {}))
        before = await episode.snapshot()
        for _ in range(2):
            await episode.restore(before)
            (page,) = await episode.call(ToolCall("turn_page", {}))
            await episode.reply_to([*begun, page])
            await episode.call(ToolCall("turn_page", {}))
        return Ending.NO_TOOL_CALLS

    spec = rollout_spec(turn_page, agent=agent, max_turns=9)
    ((trajectory,), *_) = await play_all(episode_specs(ADD), spec, scripted(numbered))
    assert [turn.read[-1].content for turn in trajectory.turns[1:]] == ["2 20", "2 20"]


async def test_an_environment_without_states_stops_the_stage() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(Message("user", "Look."))
        await episode.snapshot()
        return Ending.NO_TOOL_CALLS

    spec = rollout_spec(look, agent=agent)
    with pytest.raises(EpisodeBroken, match="Fixed cannot go back to an earlier state"):
        await play_all(episode_specs(ADD), spec, scripted(numbered))
