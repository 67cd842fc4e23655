"""The learner finds the log-probabilities that the sampler had, at each reply's temperature."""

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.trajectory import Ending, Trajectory
from agentfly_core.rl.batch import RolloutBatch, pack
from agentfly_core.rollout.episode import Episode
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec
from agentfly_core.training import policy as learner
from agentfly_core.training.policy import load_policy

TEMPERATURES = (None, 0.5, 0.0, 1.5)


async def four_replies(episode: Episode) -> Ending:
    """One at the experiment's temperature, a cool one, a greedy one and a warm one."""
    read = episode.opening
    for temperature in TEMPERATURES:
        read = (await episode.reply(*read, temperature=temperature, max_tokens=8),)
    return Ending.NO_TOOL_CALLS


async def played(nano: Path) -> list[Trajectory]:
    sampler = TransformersSampler()
    sampler.load(nano, 0)
    template = Hermes(AutoTokenizer.from_pretrained(nano))
    spec = rollout_spec(agent=four_replies, template=template)
    return (await play_all(episode_specs(ADD, chains=3), spec, sampler))[0]


@torch.no_grad()
def logprobs(nano: Path, batch: RolloutBatch, temperature: float | torch.Tensor) -> torch.Tensor:
    of_tokens: torch.Tensor = load_policy(str(nano), "float32")(
        batch.tokens, batch.sampled, temperature
    )[0]
    return of_tokens[batch.sampled]


@pytest.mark.parametrize("piece", [256, 7])
async def test_logprobs_equal_the_samplers_at_three_temperatures(
    nano: Path, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(learner.PIECES, "cpu", piece)
    batch = pack(await played(nano), temperature=1.0)
    assert set(batch.temperature[batch.sampled].tolist()) == {0.5, 1.0, 1.5}
    assert 2 not in batch.turn[batch.sampled], "the greedy reply"
    sampler = batch.rollout_logprobs[batch.sampled]
    assert (logprobs(nano, batch, batch.temperature) - sampler).abs().max() < 1e-4
    assert (logprobs(nano, batch, 1.0) - sampler).abs().max() > 0.1


async def test_a_number_and_a_column_give_the_same_bits(nano: Path) -> None:
    batch = pack(await played(nano))
    column = torch.full_like(batch.temperature, 0.7)
    assert torch.equal(logprobs(nano, batch, column), logprobs(nano, batch, 0.7))
