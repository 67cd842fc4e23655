"""Parts of an experiment are created with their settings."""

import json
import os
from typing import Any

import pytest

from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.task import Task
from agentfly_core.records.trajectory import Problem, Score, ToolCall, Unscored
from agentfly_core.rollout.pool import Limit
from agentfly_core.testing.episodes import play, rollout_spec
from tests.support.experiments import experiment_of
from tests.support.parts_with_settings import HERE, Shelf, Shorter, count

ADD = Problem("add", "1+1?", {"answer": "2"})
EXACT = "agentfly_core.rewards.exact:exact"


def task_with(**settings: Any) -> Task:
    usual = {
        "model": "m",
        "data": {"use": "tests.support.problems:clean", "train": 8, "test": 4},
        "rewards": {EXACT: 1.0},
        "steps": 1,
    }
    return experiment_of(Settings.model_validate(usual | settings)).whole


async def test_a_tool_is_created_with_its_settings() -> None:
    (search,) = task_with(tools=[{"use": f"{HERE}:Search", "index": "wiki", "results": 5}]).tools
    assert (search.name, search.schema.description) == ("search", "Find passages.")
    answer = await search.answer(ToolCall("search", {"query": "Chile"}), {})
    assert answer.content == "5 of wiki for Chile"


async def test_a_function_with_settings_makes_several_tools() -> None:
    entry = {"use": f"{HERE}:searches", "indexes": ["wiki", "news"]}
    tools = task_with(tools=[entry, f"{HERE}:count"], environments={f"{HERE}:Shelf": 1}).tools
    answers = [await one.answer(ToolCall(one.name, {"query": "Chile"}), {}) for one in tools[:2]]
    assert [one.content for one in answers] == ["3 of wiki for Chile", "3 of news for Chile"]
    assert [one.name for one in tools] == ["search_wiki", "search_news", "count"]


async def test_a_tool_in_its_own_process_has_its_settings() -> None:
    plain, marked = (
        task_with(tools=[{"use": f"{HERE}:Apart", **settings}]).tools[0]
        for settings in ({}, {"mark": "?"})
    )
    for tool, text in ((plain, "Sure!"), (marked, "Sure?"), (plain, "Sure!")):
        answer = await tool.answer(ToolCall("apart", {"text": "Sure"}), {})
        content, _, process = answer.content.partition(" ")
        assert content == text
        assert int(process) != os.getpid()


async def test_a_reward_that_is_used_twice_has_two_names() -> None:
    parts = task_with(
        rewards={
            "brief": {"use": f"{HERE}:Shorter", "weight": 0.5, "than": 2},
            f"{HERE}:Shorter": {"than": 9},
        },
        evaluate={"goal": "brief"},
    )
    (brief, shorter) = parts.rewards
    assert [(one.name, weight) for one, weight in parts.rewards.items()] == [
        ("brief", 0.5),
        ("shorter", 1.0),
    ]
    assert parts.goal == "brief"
    episode = await play(["<nothing>", "2"])
    assert [await one.score(episode, {}) for one in (brief, shorter)] == [Score(0.0), Score(1.0)]


async def test_a_reward_in_its_own_process_keeps_settings_and_name() -> None:
    (long,) = task_with(rewards={"long": {"use": f"{HERE}:LongerThan", "than": 5}}).rewards
    episode = await play(["123456"])
    assert await long.score(episode, {}) == Score(1.0)
    assert await long.score(await play(["1"]), {}) == Score(0.0)
    (wrong,) = task_with(rewards={"wrong": {"use": f"{HERE}:LongerThan", "than": -1}}).rewards
    score = await wrong.score(episode, {})
    assert isinstance(score, Unscored) and "wrong: ValueError: than is -1, at " in score.reason


def test_an_experiment_overrides_single_limits_of_a_reward() -> None:
    limits = {"weight": 1.0, "timeout": 90, "retries": 2, "concurrency": 4}
    (exact,) = task_with(rewards={EXACT: limits}).rewards
    assert (exact.name, exact.timeout, exact.retries, exact.concurrency) == ("exact", 90, 2, 4)
    (bare,) = task_with().rewards
    assert (bare.timeout, bare.retries, bare.concurrency) == (30, 0, None)


async def test_an_environment_is_created_with_its_settings() -> None:
    parts = task_with(
        tools=[f"{HERE}:count"],
        environments={f"{HERE}:Shelf": {"limit": 2, "settings": {"books": 7}}},
    )
    assert parts.limits == {Shelf: Limit(2, settings={"books": 7})}
    spec = rollout_spec(*parts.tools, limits=parts.limits)
    episode = await play([ToolCall("count", {}), "7"], spec=spec)
    assert [observation.content for observation in episode.observations] == ["7"]
    assert (await play([ToolCall("count", {}), "2"], count)).observations[0].content == "2"


async def test_an_agent_is_created_with_its_settings() -> None:
    agent = task_with(agent={"use": f"{HERE}:Twice", "question": "Really?"}).agent
    episode = await play(["3", "2"], problem=ADD, spec=rollout_spec(agent=agent))
    (question,) = episode.turns[1].read
    assert question.content == "Really?"
    assert episode.agent == "twice"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"rewards": {EXACT: {"strict": True}}},
            "'exact' is a function, so it takes no settings, got strict",
        ),
        ({"rewards": {"exact": {"use": f"{HERE}:count"}}}, "has the type Tool, expected Reward"),
        ({"tools": [f"{HERE}:searches"]}, "has the type function, expected Tool: decorate"),
        (
            {"tools": [{"use": f"{HERE}:searches", "indexes": ["wiki"], "of": "names"}]},
            "^tools: .* returned 'wiki', expected tools",
        ),
        ({"agent": {"use": f"{HERE}:Shelf"}}, "is no agent, expected an `async def`"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        task_with(**settings)


async def test_a_part_with_settings_can_be_created_in_a_test() -> None:
    episode = await play(["123456"])
    assert await Shorter.with_settings(than=3).score(episode, {}) == Score(1.0)
    with pytest.raises(ValueError, match=r"setting 'then'\. Did you mean 'than'"):
        Shorter.with_settings(then=3)
    assert json.dumps(dict(Shorter.with_settings(than=3).settings)) == '{"than": 3}'
