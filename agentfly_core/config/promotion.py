"""Comparison of a night's challenger with the champion: guards, datasets and confirmation."""

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.parts import Data
from agentfly_core.config.section import BY_NAME, Positive, Section

Margin = Annotated[float, Field(gt=0)]


class HeldOutDataset(Data):
    """A dataset for evaluation with its `test` split: `{use: "agentfly_core.datasets.files:files",
    train_file: hard.jsonl, test: 1000}`.

    It has the settings of `data`, the default seed included, and one training problem, because that
    split may not be empty.
    """

    train: Positive = 1
    validation: Annotated[int, Field(ge=0)] = 0

    @property
    def data(self) -> Data:
        """The same as a section `data`."""
        further = type(self).model_fields.keys() - HeldOutDataset.model_fields.keys()
        return Data.model_validate(self.model_dump(mode="json", exclude={*further}))


class GuardDataset(HeldOutDataset):
    """A dataset on which success must not fall by `margin`: `{use:
    "agentfly_core.datasets.files:files", train_file: hard.jsonl, test: 1000, margin: 0.05}`.

    Margins below 2.5 standard errors of the difference reject equal policies: 0.04 to 0.05 with
    1,000 problems of one episode, 0.08 to 0.10 with 250.
    """

    margin: Margin = 0.05


class Confirmation(Section):
    """Further problems on which a winning challenger must be better.

    `fresh`: problems of another seed, `times` data.test. `split`: a `share` of the test problems,
    excluded from the first comparison. `auto`: fresh for a `@generated` dataset, else split.
    """

    use: Literal["auto", "fresh", "split", "none"] = "auto"
    times: Annotated[float, Field(gt=0)] = 2.0
    share: Annotated[float, Field(gt=0, lt=1)] = 0.3


class Promotion(Section):
    """Conditions of a promotion at 95 % confidence: higher success, and each guard within its
    margin; `null` removes a guard.

    `rewards` bounds each reward's mean (and its parts) in the reward's unit, `reward_margins`
    single ones by MLflow's name, `{"exact/tag": 0.02}`. `tasks` bounds success in each task,
    `tokens` the growth as a share, `unreadable_calls` and `unscored` differences of shares. With
    1,000 problems a 95 % bound is 0.02 to 0.04 below the difference, so smaller margins than 0.05
    measure chance. Better answers are often longer, hence a quarter for tokens. `start` is the
    policy of the next night.
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
