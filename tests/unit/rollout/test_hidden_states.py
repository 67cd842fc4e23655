"""Hidden states at the end of a prompt, equal to those of plain transformers."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from agentfly_core import Context, Ending, Episode, HiddenStates, Message, Speaker
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import NoReply
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.models.model_config import tokenizer
from agentfly_core.models.pretrained import materialise
from agentfly_core.models.probe import Probe
from agentfly_core.rollout.episode import Agent, RolloutSpec
from agentfly_core.rollout.rules import FrozenPolicy
from agentfly_core.testing import rollout_spec
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, saying, scripted
from tests.support.learner_jobs import DEVICE

MORE = Message("user", "And twice that?")


def rules_of(nano: Path, agent: Agent, **rules: int) -> RolloutSpec:
    spec = rollout_spec(agent=agent, max_tokens=6, **rules)
    return replace(spec, template=Hermes(tokenizer(str(nano))))


@pytest.fixture
def sampler(nano: Path) -> TransformersSampler:
    sampler = TransformersSampler(DEVICE)
    sampler.load(nano, 3)
    return sampler


def plain_states(policy: Path, prompt: Sequence[int]) -> np.ndarray:
    """The states at the last token, [layers, width], without the code under test."""
    model = AutoModelForCausalLM.from_pretrained(policy)
    with torch.no_grad():
        every = model(torch.tensor([prompt]), output_hidden_states=True).hidden_states
    return np.stack([layer[0, -1].numpy() for layer in every])


async def test_states_are_those_of_plain_transformers(
    nano: Path, sampler: TransformersSampler
) -> None:
    states = list[HiddenStates]()

    async def agent(episode: Episode) -> Ending:
        states.append(await episode.hidden(None, *episode.opening))
        await episode.reply(*episode.opening)
        states.append(await episode.hidden([2, 0], MORE))
        await episode.reply(MORE)
        return Ending.NO_TOOL_CALLS

    (trajectory,), _, _ = await play_all(episode_specs(ADD), rules_of(nano, agent), sampler)
    one, other = trajectory.turns
    first = one.given.tokens
    second = (*first, *one.sampled[0].tokens, *other.given.tokens)
    whole, part = plain_states(nano, first), plain_states(nano, second)
    assert states[0].layers == (0, 1, 2, 3)
    assert states[1].layers == (2, 0)
    np.testing.assert_allclose(states[0].values, whole, atol=1e-5)
    np.testing.assert_allclose(states[1].values, part[[2, 0]], atol=1e-5)
    assert {one.policy for one in states} == {Probe.of(nano).digest}


async def test_reading_states_changes_no_reply(nano: Path, sampler: TransformersSampler) -> None:
    def agent(reads: bool) -> Agent:
        async def played(episode: Episode) -> Ending:
            if reads:
                await episode.context(MORE).hidden([1])
            await episode.reply(*episode.opening)
            return Ending.NO_TOOL_CALLS

        return played

    specs = episode_specs(ADD, chains=3)
    records = [
        [one.turns for one in (await play_all(specs, rules_of(nano, agent(reads)), sampler))[0]]
        for reads in (False, True)
    ]
    assert records[0] == records[1]


async def test_states_do_not_depend_on_other_episodes(
    nano: Path, sampler: TransformersSampler
) -> None:
    states = dict[tuple[int, str], bytes]()

    async def agent(episode: Episode) -> Ending:
        read = await episode.hidden(None, *episode.opening)
        states[len(problems), episode.problem.id] = read.values.tobytes()
        await episode.reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    for problems in ([ADD], [replace(ADD, id="long", prompt=ADD.prompt * 9), ADD]):
        await play_all(episode_specs(*problems), rules_of(nano, agent), sampler)
    assert states[1, ADD.id] == states[2, ADD.id]


async def test_a_fork_has_the_states_of_its_parent(
    nano: Path, sampler: TransformersSampler
) -> None:
    states = dict[int, tuple[bytes, bytes]]()

    async def agent(episode: Episode) -> Ending:
        before = await episode.hidden(None, *episode.opening)
        await episode.reply(*episode.opening)
        number = await episode.fork(2)
        after = await episode.hidden(None, MORE)
        states[number] = before.values.tobytes(), after.values.tobytes()
        await episode.reply(MORE)
        return Ending.NO_TOOL_CALLS

    await play_all(episode_specs(ADD), rules_of(nano, agent), sampler)
    assert states.keys() == {0, 1, 2}
    assert len({*states.values()}) == 1


async def test_a_changed_policy_has_another_digest(
    nano: Path, sampler: TransformersSampler, tmp_path: Path
) -> None:
    digests = list[str]()

    async def agent(episode: Episode) -> Ending:
        digests.append((await episode.hidden([1], *episode.opening)).policy)
        return Ending.NO_TOOL_CALLS

    rules = rules_of(nano, agent)
    await play_all(episode_specs(ADD), rules, sampler)
    materialise("nano:shop", tmp_path, "float32")
    sampler.load(tmp_path, 4)
    await play_all(episode_specs(ADD), rules, sampler)
    assert digests == [Probe.of(nano).digest, Probe.of(tmp_path).digest]
    assert len({*digests}) == 2


async def test_a_frozen_speaker_has_the_states_of_its_own_policy(
    nano: Path, sampler: TransformersSampler, tmp_path: Path
) -> None:
    materialise("nano:shop", tmp_path, "float32")
    other = TransformersSampler(DEVICE)
    other.load(tmp_path, 1)
    digests = list[str]()

    async def agent(episode: Episode) -> Ending:
        for speaker in (episode, episode.speaker("critic")):
            digests.append((await speaker.hidden([1], *episode.opening)).policy)
        return Ending.NO_TOOL_CALLS

    frozen = {"critic": FrozenPolicy("run:demo@1", other)}
    rules = replace(rules_of(nano, agent), frozen=frozen)
    await play_all(episode_specs(ADD), rules, sampler)
    assert digests == [Probe.of(nano).digest, Probe.of(tmp_path).digest]


async def test_an_unknown_layer_and_a_long_prompt_are_refused(
    nano: Path, sampler: TransformersSampler
) -> None:
    async def unknown(speaker: Speaker | Context) -> None:
        with pytest.raises(ValueError, match="Got layer 9"):
            await speaker.hidden([1, 9], MORE)

    async def agent(episode: Episode) -> Ending:
        await unknown(episode)
        await unknown(episode.context())
        await episode.reply(*episode.opening)
        await episode.hidden([1], Message("user", "long" * 300))
        raise AssertionError("the prompt is too long")

    rules = rules_of(nano, agent, max_model_len=200)
    (trajectory,), _, _ = await play_all(episode_specs(ADD), rules, sampler)
    assert trajectory.ending is Ending.MAX_MODEL_LEN


async def test_a_script_has_no_states() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.hidden([1], *episode.opening)
        return Ending.NO_TOOL_CALLS

    with pytest.raises(NoReply, match="cannot be read"):
        await play_all(episode_specs(ADD), rollout_spec(agent=agent), scripted(saying("99")))
