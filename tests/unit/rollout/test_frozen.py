"""Untrained speakers: the policies that reply for them, and their record."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.site import Endpoint
from agentfly_core.inference.endpoints.chat_service import ChatService
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.inference.sampler import Request
from agentfly_core.inference.scripted import NoReply
from agentfly_core.inference.templates.chatml import Hermes
from agentfly_core.records.parquet import read_trajectories, write_trajectories
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Observation,
    Problem,
    Sampled,
    ToolCall,
    Trajectory,
)
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import Agent, Episode
from agentfly_core.rollout.rules import Frozen, FrozenEndpoint, FrozenPolicy, FrozenSelf
from agentfly_core.store.store import Store
from agentfly_core.testing.episodes import ADD, episode_specs, play_all, rollout_spec, scripted
from agentfly_core.testing.letters import as_letters
from agentfly_core.tools.calculator import calculator
from tests.support.chat_service import HttpReply, completion, serving

SUMS = [ADD, Problem("b", "1+1?")]


async def agents(conversation: Conversation) -> str:
    return f"{conversation.speaker} {conversation.turn}"


async def frozens(conversation: Conversation) -> str:
    return f"frozen {conversation.turn}"


async def criticised(episode: Episode) -> Ending:
    """Answer, hear a critic, and answer again."""
    critic = episode.speaker("critic", system="Be strict.", tools=episode.rules.tools)
    first = await episode.reply(*episode.opening)
    heard = await critic.reply(Message("user", first.content))
    await episode.reply(Message("user", heard.content))
    return Ending.NO_TOOL_CALLS


async def played(
    frozen: dict[str, Frozen],
    *problems: Problem,
    agent: Agent = criticised,
    chains: int = 1,
    **rules: Any,
) -> list[Trajectory]:
    spec = replace(rollout_spec(agent=agent, **rules), frozen=frozen)
    specs = episode_specs(*(problems or [ADD]), chains=chains)
    return (await play_all(specs, spec, scripted(agents)))[0]


async def test_replies_of_a_frozen_policy_are_named_and_not_trained() -> None:
    found = await played({"critic": FrozenPolicy("run:demo@7", scripted(frozens))})
    critic, agent = found
    assert as_letters(critic) == "^sBe strict.$^ucriticised 0$^afrozen 1$"
    assert as_letters(agent) == "^u41+58?$^acriticised 0$^ufrozen 1$^acriticised 2$"
    assert (critic.policy, agent.policy) == ("run:demo@7", "")
    assert len(critic.turns[0].sampled[0].logprobs) == len("frozen 1$")
    assert pack(found).trajectory.tolist() == [1]


async def test_the_policy_itself_plays_a_role_untrained_with_its_own_tokens() -> None:
    own, usual = await played({"critic": FrozenSelf("self")}), await played({})
    assert [one.policy for one in own] == ["self", ""]
    assert [one.turns for one in own] == [one.turns for one in usual]
    assert (pack(own).trajectory.tolist(), pack(usual).trajectory.tolist()) == (
        [1],
        [0, 1],
    )


async def test_tokens_of_a_frozen_policy_count_toward_the_episode_limit() -> None:
    frozen: dict[str, Frozen] = {"critic": FrozenPolicy("run:demo@7", scripted(frozens))}
    whole = len("criticised 0$frozen 1$")
    critic, agent = await played(frozen, max_sampled_tokens=whole)
    assert (len(critic.turns), len(agent.turns)) == (1, 1)
    assert agent.ending is Ending.MAX_SAMPLED_TOKENS


class Noted(TransformersSampler):
    """Notes of which problems the episodes in each of its batches are."""

    def __init__(self, policy: Path) -> None:
        super().__init__()
        self.batches: list[str] = []
        self.load(policy, 7)

    async def reply(self, requests: Sequence[Request]) -> list[Sampled]:
        self.batches.append(" ".join(one.conversation.problem.id for one in requests))
        return await super().reply(requests)


def slowly(slow: str) -> Agent:
    """Episodes that call the same three samplers in different orders; one episode starts late."""

    async def agent(episode: Episode) -> Ending:
        critic, referee = episode.speaker("critic"), episode.speaker("referee")
        order = {
            "a": [critic, episode, referee, episode],
            "b": [episode, episode, critic],
            "c": [referee, critic, referee, episode],
        }
        for speaker in order[episode.problem.id]:
            for _ in range(50 if episode.problem.id == slow else 0):
                await asyncio.sleep(0)
            await speaker.reply(Message("user", "Go on."), max_tokens=3)
        return Ending.NO_TOOL_CALLS

    return agent


async def test_batches_do_not_depend_on_the_slower_sampler(
    nano: Path,
) -> None:
    policy, critics, referees = Noted(nano), Noted(nano), Noted(nano)
    template = Hermes(AutoTokenizer.from_pretrained(nano), show_tools=False)
    frozen = {"critic": FrozenPolicy("c", critics), "referee": FrozenPolicy("r", referees)}
    problems = [Problem(name, "1+1?") for name in "abc"]

    async def play(slow: str) -> list[Trajectory]:
        spec = rollout_spec(agent=slowly(slow), template=template, max_turns=9)
        return (await play_all(episode_specs(*problems), replace(spec, frozen=frozen), policy))[0]

    found = await play("a")
    assert policy.batches == ["b", "b", "a", "a", "c"]
    assert critics.batches == ["a b", "c"]
    assert referees.batches == ["a c", "c"]
    for slow in ("b", "c"):
        assert await play(slow) == found
    assert policy.batches == ["b", "b", "a", "a", "c"] * 3
    assert critics.batches == ["a b", "c"] * 3


async def test_branches_of_an_episode_may_use_several_samplers_at_once(
    nano: Path,
) -> None:
    policy, critics = Noted(nano), Noted(nano)

    async def agent(episode: Episode) -> Ending:
        critic = episode.speaker("critic")
        go = Message("user", "Go on.")
        await episode.gather(episode.reply(go), critic.reply(go))
        await episode.reply(go)
        return Ending.NO_TOOL_CALLS

    template = Hermes(AutoTokenizer.from_pretrained(nano), show_tools=False)
    rules = rollout_spec(agent=agent, template=template, max_turns=9, max_tokens=3)
    frozen = {"critic": FrozenPolicy("run:demo@7", critics)}
    specs = episode_specs(ADD, chains=2)
    found, *_ = await play_all(specs, replace(rules, frozen=frozen), policy)
    assert [(t.agent, len(t.turns)) for t in found] == [("agent", 2), ("critic", 1)] * 2
    assert [len(batch.split()) for batch in policy.batches] == [2, 2]
    assert [len(batch.split()) for batch in critics.batches] == [2]


def service(url: str, folder: Path, **settings: Any) -> dict[str, Frozen]:
    """A chat service as the critic, with its answers in a folder; a request is repeated at once."""
    endpoint = Endpoint(url=url, model="wise", **{"attempts": 2, **settings})
    store = Store.at(str(folder), folder / "cache")
    return {
        "critic": FrozenEndpoint("endpoint:gpt", ChatService("gpt", endpoint, store, pause=0.0))
    }


def strict(body: dict[str, Any], number: int) -> HttpReply:
    return completion(f"{body['messages'][-1]['content']}? Asked as number {number}.")


async def test_a_chat_service_replies_in_text_and_is_called_once(
    tmp_path: Path,
) -> None:
    with serving(strict) as there:
        found = await played(service(there.url, tmp_path), chains=2)
        assert len(there.asked) == 2
        assert await played(service(there.url, tmp_path), chains=2) == found
        assert len(there.asked) == 2
    critic, agent, other = found[:3]
    (turn,) = critic.turns
    replies = {f"criticised 0? Asked as number {number}." for number in range(2)}
    assert {turn.reply.content, other.turns[0].reply.content} == replies
    assert (turn.given.tokens, turn.sampled) == ((), ())
    assert turn.read == (Message("system", "Be strict."), Message("user", "criticised 0"))
    assert (critic.policy, critic.sampled_tokens, turn.call) == ("endpoint:gpt", 0, 1)
    assert as_letters(agent) == f"^u41+58?$^acriticised 0$^u{turn.reply.content}$^acriticised 2$"
    assert pack(found).trajectory.tolist() == [1, 3]
    write_trajectories(tmp_path / "t.parquet", found)
    assert read_trajectories(tmp_path / "t.parquet") == found


async def test_a_chat_service_gets_sampling_settings_and_tools(
    tmp_path: Path,
) -> None:
    async def agent(episode: Episode) -> Ending:
        critic = episode.speaker("critic", tools=[calculator], max_turns=2)
        await episode.reply(*episode.opening)
        hard = Message("user", "41+58?")
        reply = await critic.reply(hard, temperature=0.25, max_tokens=7, stop=["|"])
        await critic.reply(*await critic.call(*reply.calls))
        await critic.reply(Message("user", "Sure?"))
        raise AssertionError("it has had its turns")

    def calls(_: Any, number: int) -> HttpReply:
        return (
            completion("It is 99.")
            if number
            else completion("", ("calculator", '{"expression": "41+58"}'))
        )

    with serving(calls) as there:
        _, critic = await played(service(there.url, tmp_path), agent=agent, stop=("|", "&"))
        first, second = there.asked
    told = {name: first[name] for name in ("temperature", "max_tokens", "stop")}
    assert told == {"temperature": 0.25, "max_tokens": 7, "stop": ["|"]}
    assert [one["function"]["name"] for one in first["tools"]] == ["calculator"]
    assert [one["role"] for one in second["messages"]] == ["user", "assistant", "tool"]
    assert critic.turns[0].reply.calls == (ToolCall("calculator", {"expression": "41+58"}),)
    assert critic.turns[1].read == (Observation("calculator", "99"),)
    assert (len(critic.turns), critic.ending) == (2, Ending.MAX_TURNS)


async def test_a_service_that_is_lost_fails_the_episode_and_no_other(tmp_path: Path) -> None:
    async def agent(episode: Episode) -> Ending:
        await episode.reply(*episode.opening)
        await episode.speaker("critic").reply(*episode.opening)
        return Ending.NO_TOOL_CALLS

    def says(body: dict[str, Any], _: int) -> HttpReply:
        lost = body["messages"][-1]["content"] == "2+2?"
        return (500, {}, b"on fire") if lost else completion("Fine.")

    problems = [ADD, Problem("b", "2+2?"), Problem("c", "1+1?")]
    with serving(says) as there:
        found = await played(service(there.url, tmp_path), *problems, agent=agent)
        assert len(there.asked) == 4
    endings = {(one.problem.id, one.agent): one.ending for one in found}
    assert endings == {
        ("add-41-58", "agent"): Ending.NO_TOOL_CALLS,
        ("add-41-58", "critic"): Ending.NO_TOOL_CALLS,
        ("b", "agent"): Ending.FAILED,
        ("c", "agent"): Ending.NO_TOOL_CALLS,
        ("c", "critic"): Ending.NO_TOOL_CALLS,
    }
    (error,) = {one.error for one in found if one.error}
    assert "'gpt' gave no answer in 2 attempts: 500 on fire" in error


@pytest.mark.parametrize(
    ("answer", "settings", "told"),
    [
        ((400, {}, b"unknown field"), {}, "'gpt' refuses a request: 400 unknown field"),
        (
            completion("Fine."),
            {"max_requests": 1},
            "has used 1 requests.* Raise endpoints.gpt.max_requests",
        ),
    ],
    ids=["refused", "budget"],
)
async def test_a_service_that_refuses_access_ends_the_stage_with_advice(
    answer: HttpReply, settings: dict[str, Any], told: str, tmp_path: Path
) -> None:
    with (
        serving(lambda body, number: answer) as there,
        pytest.raises(NoReply, match=told),
    ):
        await played(service(there.url, tmp_path, **settings), *SUMS)
