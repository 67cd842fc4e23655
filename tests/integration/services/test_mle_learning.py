"""An update on pipelines of a competition."""

import pytest

pytest.importorskip("sklearn")

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.recipes.mle.dataset import competitions
from agentfly_core.recipes.mle.environment import MLE
from agentfly_core.recipes.mle.rewards import human_rank
from agentfly_core.recipes.mle.tools import fit_pipeline
from agentfly_core.testing import rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from agentfly_core.testing.learning import update_job
from tests.support.learner_jobs import settings


@pytest.mark.long
@pytest.mark.usefixtures("sandbox")
async def test_an_update_trains_the_tokens_of_pipelines(learner, nano, tmp_path):
    (problem,) = competitions(45, train=1, validation=0, test=0, kinds=["linear"])["train"]

    async def policy(conversation: Conversation) -> str:
        """A suitable model for a linear target, and an unsuitable one."""
        model = ("linear", "neighbours")[conversation.chain]
        return f"<fit_pipeline scaler=none model={model} strength:4 degree:1>"

    spec = rollout_spec(
        fit_pipeline, rewards=[human_rank], limits={MLE: 2}, max_tokens=200, deadline=600.0
    )
    played, *_ = await play_all(episode_specs(problem, chains=2), spec, scripted(policy))
    ranks = [one.observed["human_rank"].value for one in played]
    assert ranks[0] > ranks[1]
    metrics = learner.update(
        update_job(tmp_path, played, ranks, nano, update=settings(mini_batches=1))
    )
    sampled = [len(span.tokens) for one in played for turn in one.turns for span in turn.sampled]
    assert metrics["train/tokens"] == sum(sampled) > 0
    assert metrics["train/grad_norm"] > 0
