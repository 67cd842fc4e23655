"""Comparison of a night's challenger with the champion: guards, datasets and confirmation."""

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.parts import Data
from agentfly_core.config.section import BY_NAME, Positive, Section

Margin = Annotated[float, Field(gt=0)]


class HeldOutDataset(Data):
    """A dataset for evaluation with its `test` split: `{use: "agentfly_core.datasets.files:files",
    train_file: hard.jsonl, test: 1000}`.

    It has the settings of `data`, with the same default seed. `train` is 1, because a training
    split must not be empty.
    """

    train: Positive = 1
    validation: Annotated[int, Field(ge=0)] = 0

    @property
    def data(self) -> Data:
        """Return these settings as a section `data`."""
        further = type(self).model_fields.keys() - HeldOutDataset.model_fields.keys()
        return Data.model_validate(self.model_dump(mode="json", exclude={*further}))


class GuardDataset(HeldOutDataset):
    """A dataset on which success must not fall by more than `margin`: `{use:
    "agentfly_core.datasets.files:files", train_file: hard.jsonl, test: 1000, margin: 0.05}`.

    A margin below 2.5 standard errors of the difference would reject equal policies. With one
    episode per problem, 2.5 standard errors are 0.04 to 0.05 for 1,000 problems, and 0.08 to 0.10
    for 250.
    """

    margin: Margin = 0.05


class Confirmation(Section):
    """Further problems on which a challenger that won must be better again.

    `fresh` uses `times` x data.test problems of another seed. `split` uses a `share` of the test
    problems, which the first comparison leaves out. `auto` is fresh for a `@generated` dataset,
    else split.
    """

    use: Literal["auto", "fresh", "split", "none"] = "auto"
    times: Annotated[float, Field(gt=0)] = 2.0
    share: Annotated[float, Field(gt=0, lt=1)] = 0.3


class Promotion(Section):
    """The conditions of a promotion at 95 % confidence: success is higher, and each guard is within
    its margin. `null` removes a guard.

    `rewards` limits the fall of each reward's mean and of its parts, in the reward's unit.
    `reward_margins` sets single margins by the name in MLflow, such as `{"exact/tag": 0.02}`.
    `tasks` limits the fall of success in each task, and `tokens` the relative growth of sampled
    tokens. `unreadable_calls` and `unscored` limit how much these shares grow. With 1,000 problems,
    a 95 % bound is 0.02 to 0.04 below the difference, so margins below 0.05 measure chance. Better
    answers are often longer, so tokens may grow by a quarter. `start` is the policy from which the
    next night starts.
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
