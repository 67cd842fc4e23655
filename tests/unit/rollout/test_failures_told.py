"""A failure of each episode is logged once, with line and problem, and then counted."""

import re

import pytest

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Problem, ToolCall
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.testing.episodes import (
    episode_specs,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from tests.support.rooms import Room, broken, lease
from tests.support.waiting import LIMIT

SEVEN = Problem("seven", "?")


async def test_a_reset_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    async def reset(self: Room, problem: Problem) -> None:
        raise KeyError("prices")

    kind = broken(reset=reset)
    async with ResourceManager({kind: 1}) as resources:
        for _ in range(10):
            with pytest.raises(ServiceFailure, match=r"'prices', at .*_told.py:\d+ in reset"):
                async with lease(resources, kind, SEVEN, LIMIT):
                    pass
    (first,) = caplog.messages
    assert re.fullmatch(
        r"Broken.reset\(\) failed at \S+/test_failures_told.py:\d+ in reset: KeyError: 'prices' "
        r"\(first for the problem 'seven'\)",
        first,
    )


class Bank(Environment):
    async def reset(self, problem: Problem) -> None: ...

    async def pay(self) -> str:
        raise ServiceFailure("no answer")


@tool
async def pay(bank: Bank) -> str:
    return await bank.pay()


async def test_a_verb_whose_service_fails(caplog: pytest.LogCaptureFixture) -> None:
    spec = rollout_spec(pay, limits={Bank: 4})
    sampler = scripted(saying("<pay>"))
    episodes, _, _ = await play_all(episode_specs(SEVEN, chains=12), spec, sampler)
    assert {episode.error for episode in episodes} == {"ServiceFailure: no answer"}
    (first,) = caplog.messages
    assert re.fullmatch(
        r"An episode failed at \S+/test_failures_told.py:\d+ in pay: ServiceFailure: no answer "
        r"\(first in the problem 'seven'\)",
        first,
    )


async def test_a_tool_that_breaks_off(caplog: pytest.LogCaptureFixture) -> None:
    @tool
    def look_up(key: str) -> str:
        return {"pens": "3"}[key]

    for key in ("ink", "paper"):
        given = ToolCall("look_up", {"key": key})
        assert (await look_up.answer(given, {Problem: SEVEN})).content == f"KeyError: '{key}'"
    (told,) = caplog.messages
    assert re.fullmatch(
        r"The tool 'look_up' raised an error at \S+/test_failures_told.py:\d+ in look_up: "
        r"KeyError: 'ink' \(first in the problem 'seven'\); the model reads this error as the "
        r"tool's result",
        told,
    )
