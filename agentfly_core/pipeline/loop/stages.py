"""The stage functions that loops call."""

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from agentfly_core.inference.sampler import SamplerLost
from agentfly_core.pipeline import inputs, scoring
from agentfly_core.pipeline.play import solvable
from agentfly_core.pipeline.stages import (
    chats,
    finish,
    held_out,
    memory,
    policy_update,
    rollout,
    room,
    step_metrics,
    warm_start,
)
from agentfly_core.runs.versioning import dataset_version
from agentfly_core.training.job import LearnerLost

P = ParamSpec("P")
R = TypeVar("R")
SERVICE_LOST = SamplerLost | LearnerLost
"""Errors of a warm service that died."""


class Wrap(Protocol):
    """Wraps a stage function.

    `name` is a pattern with its parameters; `retries` is the number of retries if a running service
    dies.
    """

    def __call__(self, name: str, function: Callable[P, R], retries: int = 0) -> Callable[P, R]: ...


def _plain(name: str, function: Callable[P, R], retries: int = 0) -> Callable[P, R]:
    return function


class Stages:
    """The functions of all stages: plain functions with `Stages()`, or wrapped as Prefect tasks."""

    def __init__(self, wrap: Wrap = _plain) -> None:
        self.version = wrap("version the dataset with DVC", dataset_version)
        self.prepare = wrap("prepare the dataset", solvable.prepare)
        self.base_model = wrap("make the base model", inputs.base_model)
        self.require_room = wrap("look whether prompts fit", room.require_room)
        self.demonstrate = wrap("play demonstrations", warm_start.demonstrate)
        self.read_chats = wrap("read chats", chats.read_chats)
        self.choose = wrap("choose demonstrations", warm_start.choose)
        self.warm_start = wrap("warm start round {number}", warm_start.warm_start, 2)
        self.rollout = wrap(
            "rollout step {episodes.sampling_round.step} shard {shard}", rollout.rollout, 3
        )
        self.held_out = wrap("evaluate {name} step {step} shard {shard}", held_out.held_out, 3)
        self.score = wrap("score {what}", scoring.score)
        self.remember = wrap("remember step {step}", memory.remember)
        self.update = wrap("update step {step}", policy_update.update, 2)
        self.keep_state = wrap("keep the learner state of step {step}", policy_update.keep_state, 2)
        self.log_step = wrap("log step {step}", step_metrics.log_step)
        self.finish = wrap("finish", finish.finish)
