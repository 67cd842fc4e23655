"""The warm start: supervised fine-tuning before reinforcement learning."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator

from agentfly_core.config.reference import run_step
from agentfly_core.config.section import Positive, Section


class WarmStart(Section):
    """Masked supervised fine-tuning on demonstrations before reinforcement learning, in resumable
    `rounds`.

    `demonstrations` is the import path of a policy (an `async def` of one Conversation) or of a
    function of (problems, seed, its own settings) that returns one; `run:NAME@STEP` selects
    episodes of that run's steps 1 to STEP by RejectionSampling; `file:PATH` is a file of which all
    chats are imitated, with the settings of ChatFile. The learning rate falls from round to round:
    with 4 rounds it is 1, 3/4, 1/2 and 1/4 of `learning_rate`.
    """

    demonstrations: str
    episodes: Positive = 4096
    settings: dict[str, Any] = Field(default_factory=dict)
    rounds: Positive = 4
    epochs_per_round: Positive = 1
    batch: Positive = 64
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3

    @field_validator("demonstrations")
    @classmethod
    def _names_steps(cls, where: str) -> str:
        if where.startswith("run:") and not ((policy := run_step(where)) and policy.step):
            raise ValueError(
                "expected run:NAME@STEP with a step of 1 or more, such as run:nightly-2026-11-20@40"
            )
        if where == "file:":
            raise ValueError("expected file:PATH of a data file, such as file:chats.jsonl")
        return where
