"""Gradients of an episode with several contexts."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from agentfly_core.algorithms.cispo import CISPO
from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.algorithms.sapo import SAPO
from agentfly_core.records.trajectory import Ending, Message
from agentfly_core.rl.batch import pack
from agentfly_core.rl.interface import Outputs
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
    scripted,
)
from agentfly_core.training.policy import Policy
from agentfly_core.training.prefix_tree import build_trees, flatten
from tests.support.policies import numbered

TINY = LlamaConfig(
    vocab_size=128,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
)


async def wandering(episode):
    """A context that is continued later, and two branches from its middle."""
    aside = episode.context(Message("user", "Sum up."))
    begun = [*episode.opening, await episode.reply(*episode.opening)]
    await aside.reply()
    await episode.reply(Message("user", "Sure?"))
    for text in ("Why?", "How?"):
        await episode.reply_to([*begun, Message("user", text)])
    await aside.reply(Message("user", "Shorter."))
    return Ending.NO_TOOL_CALLS


def alone(trajectory):
    """The same replies, each in its own context with its whole history."""
    before, turns = {}, []
    for context, turn in enumerate(trajectory.turns):
        read = (*before.get(turn.context, ()), *turn.given.tokens)
        turns.append(replace(turn, given=replace(turn.given, tokens=read), context=context))
        before[turn.context] = (*read, *turn.sampled[0].tokens)
    return replace(trajectory, turns=tuple(turns))


def gradient(policy, algorithm, *trajectories, shared=False):
    """The gradient of the algorithm's loss after an update, with an advantage of 0.7."""
    batch, trees = pack(trajectories), None
    if shared:
        prefix_trees = build_trees(batch.tokens, batch.lengths, 400)
        assert len(prefix_trees) < len(batch.tokens), "some rows have a common beginning"
        batch = batch.select(torch.tensor([row for tree in prefix_trees for row in tree.rows]))
        trees = flatten(batch.tokens, prefix_trees)
    batch = replace(batch, advantages=0.7 * batch.sampled, old_logprobs=batch.sampled * -4.9)
    batch = replace(batch, weight=algorithm.weights(batch))
    policy.zero_grad()
    outputs = Outputs(*policy(batch.tokens, batch.sampled, 1.0, trees))
    algorithm.loss(outputs, batch).total.backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])


@pytest.fixture(scope="module")
def policy():
    torch.manual_seed(0)
    return Policy(AutoModelForCausalLM.from_config(TINY, dtype=torch.float64).eval())


@pytest.mark.parametrize("algorithm", [GRPO(), CISPO(), SAPO()], ids=lambda one: type(one).__name__)
async def test_the_gradient_of_contexts_is_the_sum_of_their_replies(policy, algorithm):
    played = await play(numbered, spec=rollout_spec(agent=wandering, max_turns=9))
    in_pieces = alone(played)
    assert len(pack([played]).tokens) == 4 and len(pack([in_pieces]).tokens) == 6
    expected = gradient(policy, algorithm, in_pieces)
    assert expected.norm() > 1e-3
    for shared in (False, True):
        computed = gradient(policy, algorithm, played, shared=shared)
        assert (computed - expected).norm() < 1e-5 * expected.norm()


async def team(episode):
    """Two speakers with one prompt and two contexts each; the agent itself never replies."""
    for name in ("planner", "critic"):
        speaker = episode.speaker(name)
        begun = [*episode.opening, await speaker.reply(*episode.opening)]
        await speaker.reply_to([*begun, Message("user", "Why?")])
        await speaker.reply_to([*begun, Message("user", "How?")])
        speaker.answer("99")
    return Ending.NO_TOOL_CALLS


async def test_shared_prefixes_keep_the_gradient(policy):
    spec = rollout_spec(agent=team, max_turns=9)
    played = (await play_all(episode_specs(ADD, chains=2), spec, scripted(numbered)))[0]
    assert [one.agent for one in played] == ["critic", "planner", "team"] * 2
    assert pack(played).trajectory.tolist() == [0, 0, 1, 1, 3, 3, 4, 4]
    expected = gradient(policy, GRPO(), *played)
    computed = gradient(policy, GRPO(), *played, shared=True)
    assert (computed - expected).norm() < 1e-5 * expected.norm()
