"""The stage functions that training and evaluation call."""

from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from agentfly_core.pipeline import inputs, scoring
from agentfly_core.pipeline.play import solvable
from agentfly_core.pipeline.stages import (
    chats,
    finish,
    memory,
    policy_update,
    rollout,
    room,
    step_metrics,
    warm_start,
)
from agentfly_core.runs.versioning import dataset_version
from agentfly_core.system.formats.text import keeping_secrets

P = ParamSpec("P")
R = TypeVar("R")


class Wrap(Protocol):
    """A function that wraps a stage function, for example as a Prefect task.

    `name` is the name of the stage, with placeholders for the function's parameters, for example
    "update step {step}". `retries` is the number of retries after the death of a service.
    """

    def __call__(self, name: str, function: Callable[P, R], retries: int = 0) -> Callable[P, R]: ...


def _plain(name: str, function: Callable[P, R], retries: int = 0) -> Callable[P, R]:
    return function


class Stages:
    """The stages of runs, such as `rollout`, `score` and `update`, as functions. With `Stages()`,
    these are plain functions. A function `wrap` can wrap them, for example as Prefect tasks.
    """

    def __init__(self, wrap: Wrap = _plain) -> None:
        def stage(name: str, function: Callable[P, R], retries: int = 0) -> Callable[P, R]:
            return wrap(name, keeping_secrets()(function), retries)

        self.version = stage("version the dataset with DVC", dataset_version)
        self.prepare = stage("prepare the dataset", solvable.prepare)
        self.base_model = stage("make the base model", inputs.base_model)
        self.require_room = stage("look whether prompts fit", room.require_room)
        self.demonstrate = stage("play demonstrations", warm_start.demonstrate)
        self.read_chats = stage("read chats", chats.read_chats)
        self.choose = stage("choose demonstrations", warm_start.choose)
        self.warm_start = stage("warm start round {number}", warm_start.warm_start, 2)
        self.rollout = stage(
            "rollout step {episodes.sampling_round.step} shard {shard}", rollout.rollout, 3
        )
        self.held_out = stage(
            "evaluate {episodes.split} step {step} shard {shard}", rollout.held_out, 3
        )
        self.score = stage("score {what}", scoring.score)
        self.remember = stage("remember step {step}", memory.remember)
        self.update = stage("update step {step}", policy_update.update, 2)
        self.keep_state = stage(
            "keep the learner state of step {step}", policy_update.keep_state, 2
        )
        self.log_step = stage("log step {step}", step_metrics.log_step)
        self.finish = stage("finish", finish.finish)
