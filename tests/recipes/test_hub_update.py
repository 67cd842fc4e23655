"""An update of the real learner trains every speaker of a hub."""

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.recipes.hub import agents, demonstrations
from agentfly_core.testing import problems_of, rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from agentfly_core.testing.learning import update_job
from tests.support.learner_jobs import settings


@pytest.mark.parametrize("speaker", demonstrations.MISTAKES)
async def test_each_speaker_has_trained_tokens(learner, nano, tmp_path, speaker):
    path = "agentfly_core.recipes.hub.dataset:hidden_numbers"
    (problem,) = problems_of(path, seed=41, train=1, validation=1, test=1)["train"]
    spec = rollout_spec(agent=agents.team, max_tokens=100, max_model_len=2000)

    async def policy(conversation: Conversation) -> str:
        return f'{{"say": "{conversation.chain}"}}'

    trajectories, *_ = await play_all(episode_specs(problem, chains=2), spec, scripted(policy))
    own = [one for one in trajectories if one.speaker == speaker]
    metrics = learner.update(
        update_job(tmp_path, own, [0.0, 1.0], nano, update=settings(mini_batches=1))
    )
    sampled = [len(span.tokens) for one in own for turn in one.turns for span in turn.sampled]
    assert metrics["train/tokens"] == sum(sampled) > 0
    assert metrics["train/grad_norm"] > 0
