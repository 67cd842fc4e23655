"""Stop strings, temperature and length of one reply."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.inference.sampler import Request, SamplingParams
from agentfly_core.inference.scripted import Scripted
from agentfly_core.records.trajectory import Ending, Message, Sampled, Trajectory
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.rollout.shard import EpisodeBroken
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import STOP, Letters, as_letters, encode, loss_mask


class Watched(Scripted):
    """A scripted sampler that keeps its requests."""

    def __init__(self, *replies: str) -> None:
        super().__init__(encode, STOP, saying(*replies))
        self.asked: list[SamplingParams] = []

    async def sample(self, request: Request) -> Sampled:
        self.asked.append(request.params)
        return await super().sample(request)


async def react(episode: Episode) -> Ending:
    """Replies twice, and repeats its observations after each reply."""
    said = await episode.reply(*episode.opening)
    for number in range(2):
        said = await episode.reply(Message("user", f"{said.content}={number}"))
    return Ending.NO_TOOL_CALLS


async def played(agent: Agent, *replies: str, stop: tuple[str, ...] = ()) -> Trajectory:
    return await play(replies, spec=rollout_spec(agent=agent, stop=stop))


async def test_a_reply_ends_at_a_stop_string() -> None:
    trajectory = await played(react, "1+1|2", "a|b|c", "end", stop=("|",))
    assert [as_letters(trajectory), loss_mask(trajectory)] == [
        "^u41+58?$^a1+1|$^u1+1=0$^aa|$^ua=1$^aend$",
        "...........xxxx...........xx.........xxxx",
    ]
    assert [turn.reply.content for turn in trajectory.turns] == ["1+1", "a", "end"]
    assert [turn.sampled[0].finish for turn in trajectory.turns] == [
        "stop_string",
        "stop_string",
        "stop",
    ]


async def test_a_call_behind_a_stop_string_is_not_made() -> None:
    trajectory = await played(react, "go|<tool>", "<tool>|", "end", stop=("|",))
    assert [len(turn.reply.calls) for turn in trajectory.turns] == [0, 1, 0]


async def test_each_reply_may_have_its_own_sampling_settings() -> None:
    async def agent(episode: Episode) -> Ending:
        first = await episode.reply(*episode.opening, stop=["|"], temperature=0.25)
        second = await episode.reply(first, stop=(), temperature=0.0)
        await episode.reply(second, max_tokens=2, entropies=True)
        return Ending.NO_TOOL_CALLS

    sampler = Watched("a|b", "a|b", "abc")
    spec = rollout_spec(agent=agent, stop=("|", "&"))
    (trajectory,), *_ = await play_all(episode_specs(ADD), spec, sampler)
    assert sampler.asked == [
        SamplingParams(0.25, 100, (STOP,), ("|",)),
        SamplingParams(0.0, 100, (STOP,), ()),
        SamplingParams(1.0, 2, (STOP,), ("|", "&"), entropies=True),
    ]
    assert [turn.reply.content for turn in trajectory.turns] == ["a", "a|b", "ab"]
    assert [turn.temperature for turn in trajectory.turns] == [0.25, 0.0, None]


async def test_a_reply_never_gets_more_tokens_than_there_is_room_for() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening, max_tokens=500)
        return Ending.NO_TOOL_CALLS

    sampler = Watched("a")
    spec = rollout_spec(agent=agent, max_model_len=60)
    await play_all(episode_specs(ADD), spec, sampler)
    assert [params.max_tokens for params in sampler.asked] == [60 - len("^u41+58?$^a")]


async def test_an_episode_ends_when_it_has_sampled_all_its_tokens() -> None:
    async def talks(episode: Episode) -> Ending:
        while True:
            await episode.reply(Message("user", "Go on."))

    rules = rollout_spec(agent=talks, max_sampled_tokens=8)
    (trajectory,), *_ = await play_all(episode_specs(ADD), rules, scripted(saying(*["12345"] * 4)))
    assert trajectory.ending is Ending.MAX_SAMPLED_TOKENS
    spans = [turn.sampled[0] for turn in trajectory.turns]
    assert [(len(span.tokens), span.finish) for span in spans] == [(6, "stop"), (2, "length")]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"stop": ["&"]},
            r"reply\(stop=\['&'\]\): each string must be in agent.stop, which is \['\|'\]. Add",
        ),
        ({"stop": "&|"}, r"reply\(stop='&\|'\): each string"),
        ({"temperature": -1.0}, r"reply\(temperature=-1.0\): expected 0 \(greedy\) or more"),
        ({"temperature": float("nan")}, r"temperature=nan"),
        ({"max_tokens": 0}, r"reply\(max_tokens=0\): expected 1 or more"),
    ],
)
async def test_what_no_sampler_takes_is_refused(settings: dict[str, object], told: str) -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening, **settings)  # type: ignore[arg-type]
        return Ending.NO_TOOL_CALLS

    with pytest.raises((EpisodeBroken, ValueError), match=told):
        await played(agent, "a", stop=("|",))


async def test_a_models_own_end_token_ends_a_reply_and_is_trained() -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        return await tool_loop(episode)

    rules = replace(rollout_spec(agent=agent), end_tokens=(ord("!"), STOP))
    sampler = Scripted(encode, ord("!"), saying("9", "8"))
    (trajectory,), *_ = await play_all(episode_specs(ADD), rules, sampler)
    assert as_letters(trajectory) == "^u41+58?$^a9!$^u41+58?$^a8!"
    assert loss_mask(trajectory) == "." * 11 + "xx" + "." * 12 + "xx"
    assert trajectory.answer == "8"
    assert rules.sampling(1.0, None, None).stop_tokens == (STOP, ord("!"))


async def test_a_template_that_knows_no_stop_strings_works_without_them() -> None:
    class Old(Letters):
        def parse(self, reply: Sequence[int]) -> Message:  # type: ignore[override]
            return super().parse(reply)

    trajectory = await play(["a|b"], spec=rollout_spec(template=Old(), stop=("&",)))
    assert trajectory.answer == "a|b"
