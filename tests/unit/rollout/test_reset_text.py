"""Text that `reset` of an environment returns, and its changes of facts."""

from typing import Any

import pytest

from agentfly_core.agents.planner_executor import PlannerExecutor
from agentfly_core.agents.react import React
from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Ending, Problem, Trajectory
from agentfly_core.rollout.episode import Agent
from agentfly_core.testing.episodes import (
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import as_letters, loss_mask


class Room(Environment):
    """A room with a `reset` that returns a fact."""

    async def reset(self, problem: Problem) -> Any:
        return problem.facts["seen"]


@tool
def look(*, room: Room) -> str:
    return "a desk"


async def played(seen: object, *replies: str, agent: Agent = tool_loop, **rules: Any) -> Trajectory:
    problem = Problem("p", "Q?", {"seen": seen})
    spec = rollout_spec(look, agent=agent, limits={Room: 1}, stop=("Observation:",), **rules)
    trajectories, _, _ = await play_all(episode_specs(problem), spec, scripted(saying(*replies)))
    return next(one for one in trajectories if one.turns or one.error)


async def test_the_text_of_reset_is_given_behind_the_problem() -> None:
    trajectory = await played("A door.", "in")
    assert as_letters(trajectory) == "^uQ?$^tA door.$^ain$"
    assert loss_mask(trajectory) == "." * 17 + "xxx"


async def test_the_text_of_reset_has_at_most_the_tokens_of_an_observation() -> None:
    trajectory = await played("x" * 300, "in", max_observation_tokens=100)
    assert "200 bytes omitted" in as_letters(trajectory)


@pytest.mark.parametrize("seen", [None, "", " "])
async def test_without_text_the_opening_is_the_problem(seen: str | None) -> None:
    assert as_letters(await played(seen, "in")).startswith("^uQ?$^a")


@pytest.mark.parametrize("agent", [React(instructions=False), React(), PlannerExecutor()])
async def test_ready_made_agents_read_the_text_of_reset(agent: Agent) -> None:
    trajectory = await played("A door.", "Final Answer: in", agent=agent)
    assert "^uQ?$^tA door.$^a" in as_letters(trajectory)


async def test_what_is_no_text_fails_the_episode_by_the_name_of_reset() -> None:
    trajectory = await played(["A door."], "in")
    assert trajectory.ending is Ending.FAILED
    assert "reset returned ['A door.'], expected text or None" in str(trajectory.error)


class Shop(Environment):
    """A shop that changes the facts of its problem."""

    async def reset(self, problem: Problem) -> str:
        return str(problem.facts["stock"].pop())


@tool
def buy(*, shop: Shop) -> str:
    return "sold"


async def test_an_episode_changes_no_facts_of_another() -> None:
    problem = Problem("p", "Q?", {"stock": ["cup", "pen"]})
    specs = [*episode_specs(problem), *episode_specs(problem)]
    spec = rollout_spec(buy, limits={Shop: 1})
    episodes, _, _ = await play_all(specs, spec, scripted(saying("in")))
    assert [as_letters(one) for one in episodes] == ["^uQ?$^tpen$^ain$"] * 2
