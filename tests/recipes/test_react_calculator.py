"""Scripts that calculate by ReAct."""

from agentfly_core.agents.react import React
from agentfly_core.datasets import demonstrations
from agentfly_core.datasets.arithmetic import arithmetic
from agentfly_core.records.trajectory import Score
from agentfly_core.rewards.exact import exact
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.tools.calculator import calculator

SUMS = arithmetic(0, 60, 1, 1)["train"]
STOP = ("Observation:",)


async def test_unspoilt_demonstrations_are_all_right() -> None:
    spec = rollout_spec(calculator, agent=React(False), stop=STOP, max_tokens=200)
    policy = demonstrations.react(SUMS, 0, 0.0)
    episodes, *_ = await play_all(episode_specs(*SUMS), spec, scripted(policy))
    for trajectory in episodes:
        assert await exact.score(trajectory, {}) == Score(1.0)
        assert [one.tool for one in trajectory.observations] == ["calculator"]


async def test_spoilt_demonstrations_are_wrong_but_well_formed() -> None:
    spec = rollout_spec(calculator, agent=React(False), stop=STOP, max_tokens=200)
    policy = demonstrations.react(SUMS, 0, 1.0)
    episodes, *_ = await play_all(episode_specs(*SUMS), spec, scripted(policy))
    for trajectory in episodes:
        assert await exact.score(trajectory, {}) == Score(0.0)
        assert trajectory.answer is not None
        assert not any(one.error for one in trajectory.observations)
