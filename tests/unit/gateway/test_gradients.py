"""Gradients of episodes behind the gateway: by trajectory, by call, and of the same in process."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentfly_core.algorithms.grpo import GRPO
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.records.trajectory import Ending, Given, Message, Sampled, Trajectory, Turn
from agentfly_core.rl.batch import RolloutBatch, pack, predictors, token_logprobs
from agentfly_core.rl.interface import Outputs
from agentfly_core.rollout.episode import Agent
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from tests.support.gateway_clients import ask, by_client, user
from tests.support.generated_trajectories import earned
from tests.support.recorded_rows import rows

CALLS, REWARDS = (10, 1, 1, 1), (1.0, 0.0, 0.0, 0.0)


async def policy(conversation: Conversation) -> str:
    return f"  reply {conversation.chain} {conversation.turn}\n"


def calls_of(reply: str) -> int:
    """The number of calls of the episode with this reply."""
    return CALLS[int(reply.split()[1])]


async def played(agent: Agent) -> list[Trajectory]:
    spec = rollout_spec(agent=agent, max_turns=10)
    trajectories, *_ = await play_all(episode_specs(ADD, chains=4), spec, scripted(policy))
    assert [len(one.turns) for one in trajectories] == [*CALLS]
    return trajectories


async def by_gateway() -> list[Trajectory]:
    async def plays(client, episode):
        messages, calls = [user("41+58?")], 10
        while calls > len(messages) // 2:
            content = (await ask(client, messages)).choices[0].message.content
            messages += [{"role": "assistant", "content": content.strip()}, user("Sure?")]
            calls = calls_of(content)

    return await played(by_client(plays))


async def in_process() -> list[Trajectory]:
    async def agent(episode):
        first = await episode.reply(Message("user", ADD.prompt))
        for _ in range(calls_of(first.content) - 1):
            await episode.reply(Message("user", "Sure?"))
        return Ending.NO_TOOL_CALLS

    return await played(agent)


def transitions(trajectory: Trajectory) -> Trajectory:
    """The trajectory with a row for each call: its whole prompt, and its reply."""
    turns: list[Turn] = []
    for number, (turn, row) in enumerate(zip(trajectory.turns, rows(trajectory), strict=True)):
        prompt, tokens, logprobs = row
        (span,) = turn.sampled
        sampled = Sampled(tokens, logprobs, span.policy_version, span.finish)
        turns.append(replace(turn, given=Given(prompt), sampled=(sampled,), context=number))
    return replace(trajectory, turns=tuple(turns))


def with_advantages(trajectories: Sequence[Trajectory]) -> RolloutBatch:
    algorithm, batch = GRPO(), pack(trajectories)
    estimate = algorithm.estimate_advantages(earned(trajectories, REWARDS, batch), batch)
    batch = replace(batch, advantages=estimate.advantages)
    return replace(batch, weight=algorithm.weights(batch))


def gradient(trajectories: Sequence[Trajectory]) -> torch.Tensor:
    """The gradient of the loss in all weights of a small model."""
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=128,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
    )
    batch = with_advantages(trajectories)
    logits = model(batch.tokens).logits[predictors(batch.sampled)]
    chosen, _ = token_logprobs(logits, batch.tokens[batch.sampled], 1.0)
    logprobs = torch.zeros_like(batch.rollout_logprobs).masked_scatter(batch.sampled, chosen)
    nothing = torch.zeros_like(logprobs)
    batch = replace(batch, old_logprobs=logprobs.detach())
    GRPO().loss(Outputs(logprobs, nothing, nothing), batch).total.backward()
    return torch.cat([weight.grad.flatten() for weight in model.parameters()])


async def test_rows_of_calls_and_episodes_have_equal_gradients():
    episodes = await by_gateway()
    calls = [*map(transitions, episodes)]
    assert (len(pack(episodes).tokens), len(pack(calls).tokens)) == (4, sum(CALLS))
    expected = gradient(await in_process())
    assert expected.abs().max() > 1e-3
    for trajectories in (episodes, calls):
        assert (gradient(trajectories) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("by_call", [False, True])
async def test_an_episode_of_ten_calls_counts_once_in_its_group(by_call):
    episodes = await by_gateway()
    batch = with_advantages([*map(transitions, episodes)] if by_call else episodes)
    for row, mask, number in zip(batch.advantages, batch.sampled, batch.trajectory, strict=True):
        assert row[mask].tolist() == pytest.approx(
            [1.5 if REWARDS[number] else -0.5] * int(mask.sum()), abs=1e-4
        )
