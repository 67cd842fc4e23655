"""A dataset of one's own, beside that of the section `data`, on which policies are evaluated."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from agentfly_core.config.section import Section
from agentfly_core.formats.json_value import JSON


class HeldOutDataset(Section):
    """Its `test` problems are played, as those of the section `data` are:
    `{use: "agentfly_core.datasets.files:files", train_file: hard.jsonl, test: 1000}`.

    All is as in that section, whose seed counts where there is none. One training problem is made,
    since that split may not be empty.
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    use: str
    train: Annotated[int, Field(ge=1)] = 1
    validation: Annotated[int, Field(ge=0)] = 0
    test: Annotated[int, Field(ge=1)]
    tolerate_bad_rows: Annotated[int, Field(ge=0)] = 0
    seed: int | None = None

    @property
    def data(self) -> dict[str, JSON]:
        """What the section `data` would say of it."""
        return self.model_dump(mode="json")
