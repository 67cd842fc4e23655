from types import SimpleNamespace
from typing import Any

import pytest

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.tool import tool
from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.checks import check
from agentfly_core.pipeline.playing import require_room, rollout_spec
from agentfly_core.recipes.shop.environment import Shop
from agentfly_core.recipes.shop.rewards import bought
from agentfly_core.recipes.shop.tools import checkout, search
from agentfly_core.records.trajectory import Ending, Message, Problem
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.rules import PromptTooLong
from agentfly_core.testing.letters import Letters
from tests.support.experiments import experiment_of

TOKENIZER = SimpleNamespace(eos_token_id=2, init_kwargs={"end_tokens": [1, 2]})
SHOP = "agentfly_core.recipes.shop.environment:Shop"
SHOP_TOOLS = "agentfly_core.recipes.shop.tools"


class Spelled(Letters):
    def __init__(self, tokenizer: Any, accent: str = "none") -> None:
        self.tokenizer, self.accent = tokenizer, accent


def settings_with(**changes: Any) -> Settings:
    settings = {
        "model": "nano:calculator",
        "template": {"use": "tests.unit.rollout.test_rules:Spelled", "accent": "soft"},
        "data": {"use": "a:b", "train": 1, "test": 1},
        "agent": {"system": "Shop.", "max_turns": 6, "max_tokens": 32, "max_model_len": 512},
        "tools": [f"{SHOP_TOOLS}:search", f"{SHOP_TOOLS}:checkout"],
        "rewards": {
            "agentfly_core.recipes.shop.rewards:bought": 1.0,
            "agentfly_core.rewards.format:tool_format": 0.1,
        },
        "environments": {SHOP: 8},
        "evaluate": {"goal": "agentfly_core.recipes.shop.rewards:bought"},
        "steps": 1,
    }
    return Settings.model_validate(settings | changes)


def test_a_playbook_is_read_from_the_experiment() -> None:
    spec = rollout_spec(experiment_of(settings_with()).whole, {}, TOKENIZER)
    assert (spec.tools, spec.agent, spec.limits) == (
        (search, checkout),
        tool_loop,
        {Shop: Limit(8)},
    )
    assert (spec.system, spec.max_turns, spec.max_tokens, spec.max_model_len) == (
        "Shop.",
        6,
        32,
        512,
    )
    assert vars(spec.template) == {"tokenizer": TOKENIZER, "accent": "soft"}
    assert spec.end_tokens == (1, 2)
    assert spec.kinds == (Shop,)
    assert [schema.name for schema in spec.schemas] == ["search", "checkout"]


def test_only_rewards_that_need_an_environment_are_scored_in_play() -> None:
    assert rollout_spec(experiment_of(settings_with()).whole, {}, TOKENIZER).rewards == (bought,)


def test_what_is_not_decorated_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"evaluate .* type function, .*@tool\."):
        experiment_of(settings_with(tools=["agentfly_core.tools.calculator:evaluate"]))


def test_a_reward_among_the_tools_is_sent_to_the_rewards() -> None:
    path = "agentfly_core.rewards.exact:exact"
    with pytest.raises(ValueError, match=r"exact .* type Reward, .*`rewards`\.$"):
        experiment_of(settings_with(tools=[path]))


def test_an_environment_that_is_asked_for_and_not_listed_is_refused() -> None:
    with pytest.raises(ValueError, match=f"needs a Shop.*{SHOP}: 8"):
        experiment_of(settings_with(environments={}))


@tool
async def mute() -> str:
    return ""


def test_a_tool_without_a_description_is_refused_before_any_work() -> None:
    with pytest.raises(
        ValueError,
        match="'mute' lacks a description",
    ):
        check(settings_with(tools=["tests.unit.rollout.test_rules:mute"]))


def test_prompts_without_room_for_a_reply_are_named_before_play() -> None:
    problems = [Problem("short", "1?"), Problem("long", "1" * 40), Problem("longer", "1" * 50)]
    agent = {"system": "Shop.", "max_model_len": 55}
    with pytest.raises(
        PromptTooLong, match=r"2 of .* is 53 tokens.* 'longer' has 63, 'long' has 53\."
    ):
        require_room(
            experiment_of(settings_with(agent=agent | {"max_model_len": 53})).tasks,
            TOKENIZER,
            problems,
        )
    with pytest.raises(PromptTooLong, match=r" 55 tokens, .* 'longer' has 63\. .*above 63"):
        require_room(experiment_of(settings_with(agent=agent)).tasks, TOKENIZER, problems)
    require_room(experiment_of(settings_with(agent=agent)).tasks, TOKENIZER, problems[:2])


@pytest.mark.parametrize("agent", [{}, {"use": "tests.unit.rollout.test_rules:curt"}])
def test_a_problem_that_does_not_fit_is_refused_before_play(
    agent: dict[str, str],
) -> None:
    settings = settings_with(agent={"system": "Shop.", **agent})
    twice = (Message("system", "Buy."), Message("user", "1?"))
    for problem in (Problem("p", "1?", tools=("serch",)), Problem("p", "1?", messages=twice)):
        with pytest.raises(ValueError, match=r"The problem 'p' "):
            require_room(experiment_of(settings).tasks, TOKENIZER, [problem])


async def curt(episode: Episode) -> Ending:
    await episode.reply(Message("user", "?"))
    return Ending.NO_TOOL_CALLS


def test_what_another_agent_asks_first_is_not_guessed() -> None:
    agent = {"use": "tests.unit.rollout.test_rules:curt", "max_model_len": 20}
    require_room(
        experiment_of(settings_with(agent=agent)).tasks, TOKENIZER, [Problem("long", "1" * 40)]
    )
