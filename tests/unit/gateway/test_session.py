"""Episodes played by OpenAI's client through the gateway."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import aiohttp
import openai
import pytest

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.gateway.session import GatewaySession, HttpCall, SpeakerPattern
from agentfly_core.records.trajectory import BadCall, Ending, Problem, Trajectory
from agentfly_core.rl.batch import pack
from agentfly_core.rollout.episode import Agent
from agentfly_core.rollout.rules import FrozenSelf
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import as_letters, loss_mask
from tests.support.gateway_clients import ask, by_client, user
from tests.support.waiting import LIMIT

QUESTION = user("41+58?")
REVIEW = {"role": "system", "content": "You review."}


async def play(agent: Agent, *replies: str, policy: Any = None, **rules: Any) -> list[Trajectory]:
    sampler = scripted(policy or saying(*replies))
    trajectories, *_ = await play_all(
        episode_specs(ADD), rollout_spec(agent=agent, **rules), sampler
    )
    assert [one.error for one in trajectories if one.error] == []
    return trajectories


async def echo(conversation: Conversation) -> str:
    """Reply with the last message."""
    return f"{conversation.messages[-1].content}!"


async def test_an_echo_of_a_reply_keeps_its_sampled_tokens():
    async def plays(client, episode):
        first = (await ask(client, [QUESTION])).choices[0].message
        call = first.tool_calls[0]
        answer = {"role": "tool", "tool_call_id": call.id, "content": "99"}
        await ask(client, [QUESTION, first.model_dump(), answer])

    (trajectory,) = await play(by_client(plays), "<calculator expression=41+58>", "99")
    assert as_letters(trajectory) == "^u41+58?$^a<calculator expression=41+58>$^t99$^a99$"
    assert loss_mask(trajectory) == "." * 11 + "x" * 30 + "." * 7 + "x" * 3


async def test_an_echo_of_an_unreadable_call_keeps_its_sampled_tokens():
    async def plays(client, episode):
        first = (await ask(client, [QUESTION])).choices[0].message
        assert (first.content, first.tool_calls) == ("calculator", None)
        await ask(client, [QUESTION, first.model_dump(), user("What?")])

    (trajectory,) = await play(by_client(plays), "<calculator", "99")
    assert as_letters(trajectory) == "^u41+58?$^a<calculator$^uWhat?$^a99$"
    assert isinstance(trajectory.turns[0].reply.calls[0], BadCall)


async def test_an_edited_reply_opens_a_context_and_is_trained_once():
    async def plays(client, episode):
        await ask(client, [QUESTION])
        edited = {"role": "assistant", "content": "98"}
        await ask(client, [QUESTION, edited, user("Sure?")])

    (trajectory,) = await play(by_client(plays), "97", "99")
    assert [turn.context for turn in trajectory.turns] == [0, 1]
    assert loss_mask(trajectory).count("x") == len("97$99$")


async def test_n_replies_have_the_same_prompt_and_are_all_trained():
    counts = Counter[int]()

    async def plays(client, episode):
        completed = await ask(client, [QUESTION], n=3)
        counts.update(choice.index for choice in completed.choices)
        assert {choice.message.content for choice in completed.choices} == {"41+58?!"}

    (trajectory,) = await play(by_client(plays), policy=echo)
    assert counts == {0: 1, 1: 1, 2: 1}
    assert [turn.call for turn in trajectory.turns] == [0, 0, 0]


async def test_concurrent_threads_and_episodes_read_their_own_replies():
    async def plays(client, episode):
        async def thread(number):
            messages = [user(f"{episode.problem.id}/{number}")]
            for _ in range(3):
                reply = (await ask(client, messages)).choices[0].message.content
                assert reply == f"{messages[-1]['content']}!"
                messages += [{"role": "assistant", "content": reply}, user(reply)]

        await asyncio.gather(*map(thread, range(16)))

    problems = [Problem(f"nonce-{number}", "?") for number in range(16)]
    spec = rollout_spec(agent=by_client(plays), max_turns=48, deadline=LIMIT)
    trajectories, *_ = await play_all(episode_specs(*problems), spec, scripted(echo))
    assert len(trajectories) == 16
    for trajectory in trajectories:
        assert (trajectory.error, len(trajectory.turns)) == (None, 48)
        assert trajectory.problem.id in as_letters(trajectory)
        others = {one.id for one in problems} - {trajectory.problem.id}
        assert not any(f"{other}/" in as_letters(trajectory) for other in others)


def posted(client: openai.AsyncOpenAI, body: dict[str, Any], **headers: str) -> Any:
    """A request by a client of its own, which can hang up."""
    url = f"{client.base_url}chat/completions"
    return aiohttp.request("POST", url, json=body, headers=headers)


async def contents(client: openai.AsyncOpenAI, body: dict[str, Any], **headers: str) -> list[str]:
    async with posted(client, body, **headers) as response:
        completed = await response.json()
        return [choice["message"]["content"] for choice in completed["choices"]]


BODY = {"messages": [QUESTION]}


class Slow:
    """A policy whose first reply waits until it is released; replies are numbered."""

    def __init__(self) -> None:
        self.count, self.begun, self.released = 0, asyncio.Event(), asyncio.Event()

    async def __call__(self, conversation: Conversation) -> str:
        self.count += 1
        number = self.count
        if number == 1:
            self.begun.set()
            await self.released.wait()
        return str(number)


async def hang_up(client, policy: Slow) -> None:
    """Send a request, and close its connection once the policy has begun to reply."""
    request = asyncio.create_task(contents(client, BODY))
    await policy.begun.wait()
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def test_a_request_whose_client_hung_up_is_joined_by_its_repetition():
    policy = Slow()

    async def plays(client, episode):
        await hang_up(client, policy)
        again = asyncio.create_task(contents(client, BODY, **{"x-stainless-retry-count": "1"}))
        policy.released.set()
        assert await again == ["1"]

    (trajectory,) = await play(by_client(plays), policy=policy)
    assert (policy.count, len(trajectory.turns)) == (1, 1)


async def test_a_reply_that_nobody_received_is_stored_and_not_trained():
    policy = Slow()

    async def plays(client, episode):
        await hang_up(client, policy)
        policy.released.set()
        assert await contents(client, {"messages": [user("And now?")]}) == ["2"]

    (trajectory,) = await play(by_client(plays), policy=policy)
    trained = {turn.reply.content: turn.sampled[0].trained for turn in trajectory.turns}
    assert trained == {"1": False, "2": True}


async def test_a_request_in_progress_ends_with_its_session():
    policy = Slow()

    async def leaves(episode):
        session = GatewaySession(episode, {})
        call = HttpCall(json.dumps(BODY), "", {}, connected=lambda: True)
        request = asyncio.create_task(session.complete(call))
        await policy.begun.wait()
        session.close()
        policy.released.set()
        with pytest.raises(asyncio.CancelledError):
            await request
        episode.answer("99")
        return Ending.NO_TOOL_CALLS

    (trajectory,) = await play(leaves, policy=policy)
    assert trajectory.turns == ()


async def test_only_a_marked_retry_gets_the_stored_reply():
    policy = Slow()
    policy.released.set()

    async def plays(client, episode):
        assert await contents(client, BODY) == ["1"]
        assert await contents(client, BODY) == ["2"]
        assert await contents(client, BODY, **{"x-stainless-retry-count": "1"}) == ["2"]
        assert await contents(client, BODY, **{"x-stainless-retry-count": "0"}) == ["3"]

    (trajectory,) = await play(by_client(plays), policy=policy)
    assert len(trajectory.turns) == 3


async def test_requests_at_the_same_time_are_samples_of_their_own():
    policy = Slow()

    async def plays(client, episode):
        requests = [asyncio.create_task(contents(client, BODY)) for _ in range(2)]
        await policy.begun.wait()
        policy.released.set()
        assert sorted(await asyncio.gather(*requests)) == [["1"], ["2"]]

    await play(by_client(plays), policy=policy)
    assert policy.count == 2


async def test_a_full_context_has_the_error_code_of_openai():
    codes = []

    async def plays(client, episode):
        for text in ("x" * 300, "41+58?"):
            try:
                completed = await ask(client, [user(text)])
                codes.append(completed.choices[0].finish_reason)
            except openai.BadRequestError as error:
                codes.append(error.code)

    await play(by_client(plays), "x" * 300, max_model_len=200, max_tokens=400)
    assert codes == ["context_length_exceeded", "length"]


async def test_a_client_gets_at_most_the_tokens_of_the_experiment():
    replies = []

    async def plays(client, episode):
        for tokens in (2, 50):
            (choice,) = (await ask(client, [QUESTION], max_tokens=tokens)).choices
            replies.append((choice.message.content, choice.finish_reason))

    await play(by_client(plays), "9" * 20, "9" * 20, max_tokens=5)
    assert replies == [("99", "length"), ("99999", "length")]


async def test_a_refused_request_is_no_turn():
    async def plays(client, episode):
        for messages, fields in (([QUESTION], {"stop": "END"}), ([user("x" * 300)], {})):
            with pytest.raises(openai.BadRequestError):
                await ask(client, messages, **fields)
        await ask(client, [QUESTION])

    (trajectory,) = await play(by_client(plays), "99", max_turns=1, max_model_len=200)
    assert [turn.reply.content for turn in trajectory.turns] == ["99"]


async def test_turns_in_progress_count_as_turns():
    refused = []

    async def plays(client, episode):
        async def one():
            try:
                await ask(client, [QUESTION])
            except openai.BadRequestError as error:
                refused.append(error.code)

        await asyncio.gather(*(one() for _ in range(5)))

    (trajectory,) = await play(by_client(plays), policy=echo, max_turns=3)
    assert (refused, len(trajectory.turns)) == ([Ending.MAX_TURNS.value] * 2, 3)


@pytest.mark.parametrize(
    ("pattern", "body", "options"),
    [
        ({"model": "critic-*"}, {"model": "critic-4"}, {}),
        ({"path": "critic"}, {}, {"path": "critic/"}),
        ({"header": "X-Agent: critic"}, {}, {"x-agent": "critic"}),
        (
            {"system": "^You review"},
            {"messages": [{"role": "system", "content": "You review."}]},
            {},
        ),
    ],
)
async def test_a_request_belongs_to_the_first_speaker_that_it_fits(pattern, body, options):
    async def plays(client, episode):
        await ask(client, [QUESTION])
        headers = {name: value for name, value in options.items() if name != "path"}
        url = f"{client.base_url}{options.get('path', '')}chat/completions"
        own = {"model": "m", "messages": [*body.get("messages", []), QUESTION]}
        async with aiohttp.request(
            "POST", url, json={**own, **body, "messages": own["messages"]}, headers=headers
        ) as response:
            assert response.status == 200
        assert [one.id async for one in client.models.list()] == ["client_agent", "critic"]

    agent = by_client(plays, {"critic": SpeakerPattern(**pattern)})
    trajectories = await play(agent, policy=echo)
    assert [(one.agent, len(one.turns)) for one in trajectories] == [
        ("client_agent", 1),
        ("critic", 1),
    ]


async def test_only_the_speaker_outside_of_frozen_is_trained():
    async def plays(client, episode):
        for model in ("any", "writer", "critic"):
            await ask(client, [QUESTION], model)

    speakers = {role: SpeakerPattern(model=role) for role in ("writer", "critic")}
    frozen = dict.fromkeys(("client_agent", "critic"), FrozenSelf("self"))
    rules = replace(rollout_spec(agent=by_client(plays, speakers)), frozen=frozen)
    trajectories, *_ = await play_all(episode_specs(ADD), rules, scripted(echo))
    assert {one.agent for one in trajectories} == {"client_agent", "writer", "critic"}
    assert [trajectories[n].agent for n in pack(trajectories).trajectory] == ["writer"]


def test_a_pattern_without_a_rule_is_refused():
    with pytest.raises(ValueError, match="model, path, header"):
        SpeakerPattern()


async def test_a_posted_reward_is_that_of_the_last_reply():
    statuses = []

    async def plays(client, episode):
        async def reward(body):
            async with aiohttp.request("POST", f"{client.base_url}reward", data=body) as response:
                statuses.append(response.status)

        await reward('{"value": 1}')
        await ask(client, [QUESTION])
        await ask(client, [QUESTION])
        for body in ('{"value": 0.5}', '{"value": 0.25}', '{"value": "much"}', "{"):
            await reward(body)

    (trajectory,) = await play(by_client(plays), policy=echo)
    assert [turn.reward for turn in trajectory.turns] == [None, 0.75]
    assert statuses == [400, 200, 200, 400, 400]


async def test_what_the_gateway_lacks_is_answered_with_a_sentence():
    answers = []

    async def plays(client, episode):
        base = str(client.base_url)
        for path in ("completions", "responses", "messages", "nobody/chat/completions", "../x"):
            async with aiohttp.request("POST", base + path, json=BODY) as response:
                answers.append((response.status, (await response.json())["error"]["message"]))
        other = base.replace(base.split("/")[-3], "f" * 32)
        async with aiohttp.request("POST", f"{other}chat/completions", json=BODY) as response:
            answers.append((response.status, (await response.json())["error"]["message"]))
        async with posted(client, {"messages": [user("x" * 5_000_000)]}) as response:
            answers.append((response.status, ""))
        async with aiohttp.request("POST", f"{base}chat/completions", data="{") as response:
            answers.append((response.status, ""))
        await ask(client, [QUESTION])

    (trajectory,) = await play(by_client(plays), policy=echo)
    statuses = [status for status, _ in answers]
    assert statuses == [404, 404, 404, 404, 404, 404, 413, 400]
    assert all("serves /chat/completions" in text for _, text in answers[:3])
    assert "the episode of this URL has ended" in answers[5][1]
    assert trajectory.error is None


async def test_an_error_of_the_sampler_ends_the_episode_and_not_the_server():
    async def policy(conversation: Conversation) -> str:
        raise RuntimeError("no policy")

    async def plays(client, episode):
        await ask(client, [QUESTION])

    with pytest.raises(ValueError, match="no policy"):
        await play(by_client(plays), policy=policy)


async def test_an_echo_of_control_characters_keeps_its_tokens():
    async def plays(client, episode):
        first = (await ask(client, [QUESTION])).choices[0].message
        await ask(client, [QUESTION, first.model_dump(), user("What?")])

    (trajectory,) = await play(by_client(plays), "a\0b\x1b\ufffd", "99")
    assert as_letters(trajectory) == "^u41+58?$^aa\0b\x1b\ufffd$^uWhat?$^a99$"
