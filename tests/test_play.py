"""Stages that play and score stop rather than go on with too little."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentfly_core.config import Science
from agentfly_core.environment import Environment, ServiceFailure
from agentfly_core.gates import GateClosed
from agentfly_core.home import home
from agentfly_core.play import demonstrate, of_step, play_shard, score_episodes
from agentfly_core.record import Problem, Trajectory
from agentfly_core.resources import Limit
from agentfly_core.reward import reward
from agentfly_core.samplers.scripted import Scripted
from agentfly_core.tool import tool

PROBLEMS = [Problem(f"add-{i}", f"What is {i}+1?", {"answer": str(i + 1)}) for i in range(8)]
CALL = '<tool_call>\n{"name": "shop", "arguments": {}}\n</tool_call>'


@tool
async def shop() -> str:
    """Go shopping."""
    raise ServiceFailure("the shop is closed")


@reward
def fussy(trajectory: Trajectory) -> float:
    raise KeyError("colour")


class Room(Environment):
    async def reset(self, problem: Problem) -> None:
        pass


@reward
def tidy(room: Room) -> float:
    raise KeyError("broom")


def asks_the_shop(problems: Any, seed: int) -> Any:
    return lambda problem, chain, turn: CALL


def science(**changes: Any) -> Science:
    settings = {
        "model": "nano:calculator",
        "data": {"use": "a:b", "train": 8, "test": 1},
        "tools": ["test_play:shop"],
        "rewards": {"test_play:fussy": 1.0},
        "rollout": {"problems": 8, "group_size": 1},
        "warm_start": {"demonstrations": "test_play:asks_the_shop", "episodes": 8},
        "steps": 1,
    }
    return Science.model_validate(settings | changes)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> Any:
    return AutoTokenizer.from_pretrained(nano, trust_remote_code=False)


def played(rules: Science, tokenizer: Any, said: str, folder: Path) -> None:
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    sampler = Scripted(partial(tokenizer.encode, add_special_tokens=False), stop, lambda problem, chain, turn: said)
    with home({Room: Limit(8)}) as here:
        play_shard(rules, tokenizer, sampler, of_step(rules, PROBLEMS, 1), folder, lambda trajectory: None, here)


def test_a_shard_whose_tools_service_is_gone_stops(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(GateClosed, match=r"8 of 8 episodes failed .*the shop is closed"):
        played(science(), tokenizer, CALL, tmp_path)


def test_a_shard_without_the_rewards_of_its_environment_is_not_kept(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(GateClosed, match=r"8 of 8 episodes have no reward .*tidy: KeyError: 'broom'"):
        played(science(rewards={"test_play:tidy": 1.0}, environments={"test_play:Room": 8}), tokenizer, "2", tmp_path)


def test_demonstrations_whose_tools_service_is_gone_stop(tokenizer: Any, tmp_path: Path) -> None:
    with home({}) as here, pytest.raises(GateClosed, match=r"8 of 8 episodes failed .*the shop is closed"):
        demonstrate(science(), tokenizer, PROBLEMS, tmp_path, here)


def test_scores_that_are_missing_stop_the_stage(tokenizer: Any, tmp_path: Path) -> None:
    played(science(), tokenizer, "2", tmp_path)
    with pytest.raises(GateClosed, match=r"8 of 8 trajectories have no reward .*fussy: KeyError: 'colour'"):
        score_episodes(science(), [tmp_path], [], 1, tmp_path)


def test_more_may_be_missing_where_the_experiment_says_so(tokenizer: Any, tmp_path: Path) -> None:
    lenient = science(gates={"failed": 1.0, "unscored": 1.0})
    played(lenient, tokenizer, CALL, tmp_path)
    assert score_episodes(lenient, [tmp_path], [], 1, tmp_path)["agent/rollout/ending/failed"] == 1.0
