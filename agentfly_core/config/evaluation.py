"""How policies are evaluated: on which splits and datasets, how often, and by how many episodes."""

import re
from typing import Annotated, Self

from pydantic import Field, model_validator

from agentfly_core.config.promotion import HeldOutDataset
from agentfly_core.config.reference import NAME
from agentfly_core.config.section import RESUMABLE, Positive, Section

SPLITS = ("train", "validation", "test")


class Evaluate(Section):
    """Held-out evaluation: the test split before and after training, and the validation split after
    every `every` steps (0: never).

    `pass_at` lists values of k for pass@k. `by` names a fact; success is also reported for each of
    its values. `datasets` are evaluated together with the test split.
    """

    goal: str = Field(
        default="",
        description="the reward that decides success (1 or more); needed with several rewards",
    )
    every: Annotated[int, Field(ge=0)] = Field(default=0, json_schema_extra=RESUMABLE)
    episodes: Positive = 1
    temperature: Annotated[float, Field(ge=0)] = 1.0
    pass_at: tuple[Positive, ...] = Field(default=(), json_schema_extra=RESUMABLE)
    by: str = Field(default="", json_schema_extra=RESUMABLE)
    datasets: dict[str, HeldOutDataset] = Field(default_factory=dict, json_schema_extra=RESUMABLE)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that a run plays; `validation` is one of them if `every` is set."""
        return SPLITS if self.every else ("train", "test")

    @model_validator(mode="after")
    def _has_enough_episodes(self) -> Self:
        if self.pass_at and max(self.pass_at) > self.episodes:
            raise ValueError(
                f"pass_at: got {max(self.pass_at)} with {self.episodes} episodes of a problem, "
                f"expected as many or more: set evaluate.episodes={max(self.pass_at)}"
            )
        for name in self.datasets:
            if name in SPLITS or not re.fullmatch(NAME, name):
                raise ValueError(
                    f"datasets: got the name {name!r}, expected letters, digits, '.', '_' and '-', "
                    "and none of the splits train, validation and test"
                )
        return self
