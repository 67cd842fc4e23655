"""The settings of the comparison of a nightly run's policy (the challenger) with the champion."""

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.parts import Data
from agentfly_core.config.section import BY_NAME, Positive, Section

Margin = Annotated[float, Field(gt=0)]


class HeldOutDataset(Data):
    """A dataset that is used only for evaluation: `{use: "agentfly_core.datasets.files:files",
    train_file: hard.jsonl, test: 1000}`.

    Policies are evaluated on the split `test`. The keys and the default seed are those of the
    section `data`. The split `train` is not used. By default, `train` is 1, because this split must
    not be empty.
    """

    train: Positive = 1
    validation: Annotated[int, Field(ge=0)] = 0

    @property
    def data(self) -> Data:
        """The settings of this dataset as a section `data`, without the key `margin`."""
        further = type(self).model_fields.keys() - HeldOutDataset.model_fields.keys()
        return Data.model_validate(self.model_dump(mode="json", exclude={*further}))


class GuardDataset(HeldOutDataset):
    """A dataset on which success must not fall by more than `margin`: `{use:
    "agentfly_core.datasets.files:files", train_file: hard.jsonl, test: 1000, margin: 0.05}`.

    `margin` should be at least 2.5 standard errors of the difference in success. With a smaller
    margin, an equally good policy may be rejected by chance. With one episode per problem, 2.5
    standard errors are 0.04 to 0.05 for 1,000 problems, and 0.08 to 0.10 for 250 problems.
    """

    margin: Margin = 0.05


class Confirmation(Section):
    """The confirmation: a second comparison with the champion, on further problems.

    A policy that a nightly run has trained must first win a comparison. If the policy also wins
    the confirmation, the policy is promoted.

    - `use: fresh`: compare on new problems with another seed. Their number is `times` x data.test.
    - `use: split`: compare on a part of the test problems. `share: 0.3` reserves 30 % of the test
      problems for the confirmation. The first comparison uses the other 70 %.
    - `use: auto`: `fresh` for a dataset that is decorated with `@generated`, else `split`
    - `use: none`: promote the policy without a second comparison
    """

    use: Literal["auto", "fresh", "split", "none"] = "auto"
    times: Annotated[float, Field(gt=0)] = 2.0
    share: Annotated[float, Field(gt=0, lt=1)] = 0.3


class Promotion(Section):
    """The conditions under which the policy of a nightly run becomes the champion. They must hold
    with 95 % confidence.

    The policy's success must be higher than the champion's, and each guard must be within its
    margin. A guard is a value that must not become much worse. `null` removes a guard.

    - `rewards`: how much the mean of each reward may fall. The limit also holds for each partial
      score of a reward.
    - `reward_margins`: margins of single rewards, by their names in MLflow: `{"exact/tag": 0.02}`
    - `tasks`: how much success may fall in each task
    - `tokens`: how much the number of sampled tokens may grow, as a share. The default is a
      quarter, because better answers are often longer.
    - `unreadable_calls`: how much the share of unreadable tool calls may grow
    - `unscored`: how much the share of unscored episodes may grow
    - `start` is not a condition, but the policy from which the next nightly run starts: the
      `champion`, or the policy of the `last` finished nightly run.

    With 1,000 problems, the 95 % bound is 0.02 to 0.04 below the measured difference. With a margin
    below 0.05, an equally good policy may therefore be rejected by chance.
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
