"""An update of the real learner trains every speaker of a team."""

from importlib import import_module

import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.recipes.blueprint import tools
from agentfly_core.recipes.blueprint.agents import Architect
from agentfly_core.recipes.coop_tools.agents import ROLES, CoopTeam
from agentfly_core.recipes.evolve.agents import Evolve
from agentfly_core.recipes.hub.agents import team
from agentfly_core.recipes.hub.team import MEMBERS
from agentfly_core.testing import problems_of, rollout_spec
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from agentfly_core.testing.learning import update_job
from tests.support.learner_jobs import settings

BUILDING = (tools.submit_blueprint, tools.build, tools.inspect)
TEAMS = {
    "hub": (team, "hidden_numbers", "team", MEMBERS),
    "coop_tools": (CoopTeam(), "rest_questions", "team", ROLES),
    "evolve": (Evolve(["reversal"]), "word_questions", "team", ("evolve", "evolver", "expert")),
    "blueprint": (Architect(), "orders", "architect", ("interpreter", "designer")),
}


@pytest.mark.long
@pytest.mark.parametrize(
    ("recipe", "speaker"), [(name, one) for name, (*_, roles) in TEAMS.items() for one in roles]
)
async def test_each_speaker_has_trained_tokens(learner, nano, tmp_path, recipe, speaker):
    agent, dataset, script, _ = TEAMS[recipe]
    path = f"agentfly_core.recipes.{recipe}"
    (problem,) = problems_of(f"{path}.dataset:{dataset}", seed=41, train=1, validation=1, test=1)[
        "train"
    ]
    demonstrated = getattr(import_module(f"{path}.demonstrations"), script)([problem], 0)

    async def policy(conversation: Conversation) -> str:
        """Replies that differ by chain, since equal ones have no gradient."""
        return await demonstrated(conversation) + " " * conversation.chain

    spec = rollout_spec(
        *(BUILDING if recipe == "blueprint" else ()),
        agent=agent,
        max_turns=20,
        max_tokens=1000,
        max_model_len=20_000,
    )
    trajectories, *_ = await play_all(episode_specs(problem, chains=2), spec, scripted(policy))
    own = [one for one in trajectories if one.speaker == speaker]
    rewards = [float(one.chain) for one in own]
    job = update_job(tmp_path, own, rewards, nano, update=settings(mini_batches=1))
    metrics = learner.update(job)
    sampled = [len(span.tokens) for one in own for turn in one.turns for span in turn.sampled]
    assert metrics["train/tokens"] == sum(sampled) > 0
    assert metrics["train/grad_norm"] > 0
