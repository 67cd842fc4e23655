"""How a night's policy, the challenger, is judged against the champion: margins of the guards,
datasets of one's own, and the confirmation on other problems.
"""

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
    A margin below 2.5 standard errors of the difference keeps back policies that lost nothing: with
    1,000 problems of one episode that is 0.04 to 0.05, with 250 it is 0.08 to 0.10.
    """

    margin: Margin = 0.05

    @property
    def data(self) -> dict[str, JSON]:
        """What the section `data` would say of it."""
        return self.model_dump(mode="json", exclude={"margin"})


class Confirmation(Section):
    """The other problems on which a challenger that won must be better, too.

    `fresh`: those that the dataset's function generates from another seed, `times` as many as
    data.test; `split`: a `share` of the test problems, which the first comparison leaves out;
    `auto`: fresh where the function is marked `@generated`, else split; `none`: no confirmation. A
    file has no fresh problems, so split is what is safe for every dataset that does not say more.
    """

    use: Literal["auto", "fresh", "split", "none"] = "auto"
    times: Annotated[float, Field(gt=0)] = 2.0
    share: Annotated[float, Field(gt=0, lt=1)] = 0.3


class Promotion(Section):
    """When a challenger becomes the champion: its success is higher, and each guard is worse by
    less than its margin, all at 95 % confidence; `null` takes a guard away.

    `rewards` is the margin of the mean of each reward, and of each part of one that every test
    problem has, in its own unit (0.05 of a reward from 0 to 1), `reward_margins` that of single
    ones by the name that MLflow shows, `{"exact/tag": 0.02}`; `tasks` is that of the success in
    each task of a mixture; `tokens` is a share of the champion's tokens an episode;
    `unreadable_calls` and `unscored`, the share of unscored episodes, are differences of shares.
    With 1,000 test problems a 95 % bound lies 0.02 to 0.04 below the difference: a smaller margin
    than 0.05 would mostly measure chance. Tokens may grow by up to a quarter in a night, since
    answers that get better often get longer. `start` says which policy the next night starts from;
    the champion, so that a bad night is not built upon.
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
