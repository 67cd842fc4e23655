"""The wrapper for Gymnasium."""

from collections.abc import Iterator

import pytest

pytest.importorskip("sklearn")
pytest.importorskip("gymnasium")

from gymnasium.utils import env_checker

from agentfly_core.recipes.mle.dataset import competitions
from agentfly_core.recipes.mle.gym import TOOLS, MLEGym
from agentfly_core.recipes.mle.pipelines import program
from agentfly_core.recipes.mle.tools import execute_code, request_info, validate_code

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("sandbox")]


@pytest.fixture
def env() -> Iterator[MLEGym]:
    opened = MLEGym(competitions(9, 3, 0, 0, kinds=["linear", "text"])["train"], max_steps=3)
    yield opened
    opened.close()


def test_the_checker_of_gymnasium_passes(env):
    env_checker.check_env(env, skip_render_check=True)


def test_equal_seeds_and_actions_give_equal_episodes(env):
    actions = [
        (request_info, "all"),
        (validate_code, "1 / 0"),
        (execute_code, program("none", "linear", 2, 1)),
    ]
    episodes = []
    for _ in range(2):
        observations = [env.reset(seed=5)]
        for tool, text in actions:
            observations.append(env.step({"tool": TOOLS.index(tool), "argument": text}))
        episodes.append(observations)
    assert episodes[0] == episodes[1]
    (_, info, failed, (seen, reward, terminated, truncated, _)) = episodes[0]
    assert "ZeroDivisionError" in failed[0] and failed[4] == {"error": True}
    assert (terminated, truncated) == (False, True)
    assert reward > 0 and "Public score" in seen
    assert env.observation_space.contains(seen) and info[1] == 0.0
