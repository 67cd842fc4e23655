"""Comparison of a night's challenger with the champion: guards, datasets and confirmation."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.section import BY_NAME, OPEN, Positive, Section
from agentfly_core.system.formats.json_value import JSON

Margin = Annotated[float, Field(gt=0)]


class HeldOutDataset(Section):
    """Its `test` problems are played, as those of the section `data` are:
    `{use: "agentfly_core.datasets.files:files", train_file: hard.jsonl, test: 1000}`.

    All is as in that section, whose seed counts where there is none. One training problem is made,
    since that split may not be empty.
    """

    model_config = OPEN
    use: str
    train: Positive = 1
    validation: Annotated[int, Field(ge=0)] = 0
    test: Positive
    tolerate_bad_rows: Annotated[int, Field(ge=0)] = 0
    seed: int | None = None

    @property
    def data(self) -> dict[str, JSON]:
        """What the section `data` would say of it."""
        return self.model_dump(mode="json")


class GuardDataset(HeldOutDataset):
    """A dataset of one's own on which success must not fall; champion and challenger play it.

    `{use: "agentfly_core.datasets.files:files", train_file: hard.jsonl, test: 1000, margin: 0.05}`.
    Margins below 2.5 standard errors of the difference reject equal policies: 0.04 to 0.05 with
    1,000 problems of one episode, 0.08 to 0.10 with 250.
    """

    margin: Margin = 0.05

    @property
    def data(self) -> dict[str, JSON]:
        """What the section `data` would say of it."""
        return self.model_dump(mode="json", exclude={"margin"})


class Confirmation(Section):
    """Further problems on which a winning challenger must be better.

    `fresh`: problems of another seed, `times` as many as data.test. `split`: a `share` of the test
    problems, excluded from the first comparison. `auto`: fresh for a `@generated` dataset, else
    split. `none`: no confirmation.
    """

    use: Literal["auto", "fresh", "split", "none"] = "auto"
    times: Annotated[float, Field(gt=0)] = 2.0
    share: Annotated[float, Field(gt=0, lt=1)] = 0.3


class Promotion(Section):
    """Conditions of a promotion, all at 95 % confidence: higher success, and each guard within its
    margin; `null` removes a guard.

    `rewards` is the margin of each reward's mean and of parts that all test problems have, in its
    own unit, `reward_margins` that of single ones by MLflow's name, `{"exact/tag": 0.02}`. `tasks`
    is the margin of success in each task, `tokens` a share of the champion's tokens, and
    `unreadable_calls` and `unscored` are differences of shares. With 1,000 problems a 95 % bound is
    0.02 to 0.04 below the difference, so margins below 0.05 measure chance. Better answers are
    often longer, so tokens may grow by a quarter. `start` is the policy of the next night.
    """

    rewards: Margin | None = 0.05
    reward_margins: dict[str, Margin | None] = Field(default_factory=dict)
    tasks: Margin | None = 0.1
    tokens: Margin | None = 0.25
    unreadable_calls: Margin | None = 0.05
    unscored: Margin | None = 0.05
    datasets: dict[str, GuardDataset] = Field(default_factory=dict)
    confirmation: Annotated[Confirmation, BY_NAME] = Confirmation()
    start: Literal["champion", "last"] = "champion"
