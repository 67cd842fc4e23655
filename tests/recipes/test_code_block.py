"""Scripts that write Python blocks, run in the sandbox."""

import pytest

from agentfly_core.agents.code_block import STOP, code_block
from agentfly_core.datasets import demonstrations
from agentfly_core.datasets.powers import powers
from agentfly_core.records.trajectory import Score
from agentfly_core.rewards.exact import exact
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.tools import python as real

POWERS = powers(0, 40, 1, 1)["train"]


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(("spoilt", "score"), [(0.0, 1.0), (1.0, 0.0)])
async def test_demonstrations_run_programs_in_the_sandbox(spoilt: float, score: float) -> None:
    spec = rollout_spec(real.python, agent=code_block, stop=(STOP,), max_tokens=200)
    policy = demonstrations.code_block(POWERS, 0, spoilt)
    episodes, *_ = await play_all(episode_specs(*POWERS), spec, scripted(policy))
    for trajectory in episodes:
        assert await exact.score(trajectory, {}) == Score(score)
        assert not any(one.error for one in trajectory.observations)
    assert {one.tool for t in episodes for one in t.observations} == {"python"}
