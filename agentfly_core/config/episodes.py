"""Settings of the episodes that training steps and held-out evaluations play."""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from agentfly_core.config.promotion import HeldOutDataset
from agentfly_core.config.reference import NAME
from agentfly_core.config.section import RESUMABLE, Positive, Section, Share

SPLITS = ("train", "validation", "test")


class Curriculum(Section):
    """Choose the problems of a step by their pass rates: `{window: 4, by: kind}`.

    With `window: 4`, a step with 16 problems samples these problems from 64 candidates. The
    sampling weight of a problem is p (1 - p) + 0.01. The pass rate p is (solved + 1) / (scored +
    2), where `solved` and `scored` are numbers of episodes in earlier steps. If `by` is a key of
    `Problem.facts`, all problems with the same value for this key share one pass rate.
    """

    window: Annotated[int, Field(ge=2)] = 4
    by: str = ""


class Branching(Section):
    """Forks of episodes after tool results (ARPO, arXiv 2507.19849): `{total: 16, init: 8, k: 20,
    alpha: 0.5, beta: 0.2, mode: entropy}`.

    A fork is a further episode that copies another episode up to a tool's result. Then the fork
    samples a new reply to this result. A problem has `total` episodes. `init` of these episodes are
    sampled from the prompt, and each of them can be forked (total - init) / init times. If fewer
    forks are made, further episodes are sampled from the prompt, until the problem has `total`
    episodes.

    The probability of a fork is P = alpha + beta (H - H_first) / log(vocabulary), limited to the
    range 0 to 1. H is the mean entropy of the first `k` tokens of a reply to a tool's result.
    H_first is the mean entropy of the first `k` tokens of the first reply by the same speaker.
    `mode` decides whether the episode is forked before the reply:

    - `entropy` forks with probability P.
    - `threshold` forks if P is above the setting `tau`.
    - `random` forks with probability `alpha`.
    - `never` does not fork: all `total` episodes are sampled from the prompt.
    """

    total: Annotated[int, Field(ge=2)] = 16
    init: Positive = 8
    k: Positive = 20
    alpha: Share = 0.5
    beta: Annotated[float, Field(ge=0)] = 0.2
    tau: Share = 0.5
    mode: Literal["entropy", "threshold", "random", "never"] = "entropy"

    @model_validator(mode="after")
    def _divides_forks(self) -> Self:
        if self.total <= self.init or self.total % self.init:
            raise ValueError(
                f"got total {self.total} and init {self.init}, expected a total that is a "
                f"multiple of init and larger than init. Each of the first {self.init} episodes is "
                "forked (total - init) / init times"
            )
        return self

    @property
    def reads_entropies(self) -> bool:
        """Whether the setting `mode` needs token entropies. True for `entropy` and `threshold`."""
        return self.mode in ("entropy", "threshold")

    def check_service(self, name: str) -> None:
        """Raise ValueError if the setting `mode` needs token entropies.

        A chat service does not return entropies. The message contains `name`, the name of the chat
        service.
        """
        if self.reads_entropies:
            raise ValueError(
                f"rollout.branching.mode is {self.mode}, but the chat service {name!r} returns no "
                "entropies. Set rollout.branching.mode to random or never."
            )


class Rollout(Section):
    """The episodes of a step. A step has `problems` x `group_size` episodes.

    - `shard`: the number of episodes in a shard, a batch that is sampled and stored together. If
      the sampler dies, at most one shard is lost.
    - `refills`: the largest number of further sampling rounds in a step. If all episodes of a
      problem have the same reward, such a round replaces the problem by another problem (dynamic
      sampling, DAPO, arXiv 2503.14476). The default depends on the algorithm.
    - `max_staleness`: how many updates old the sampling policy is. With 0, step 7 samples with the
      policy after step 6. With 1, step 7 samples with the policy after step 5, while the update of
      step 6 is still running.
    - `branching`: forks of episodes. `branching.total` replaces `group_size`.
    """

    problems: Positive = 16
    group_size: Positive = 8
    temperature: Annotated[float, Field(gt=0)] = 1.0
    shard: Positive = 32
    refills: Annotated[int, Field(ge=0)] = 0
    max_staleness: Annotated[int, Field(ge=0)] = 0
    curriculum: Curriculum | None = None
    # an unset value is not part of keys and digests
    branching: Branching | None = Field(default=None, exclude_if=lambda section: section is None)

    @model_validator(mode="before")
    @classmethod
    def _total_is_group_size(cls, value: Any) -> Any:
        branching = value.get("branching") if isinstance(value, dict) else None
        if branching is None or "group_size" in value:
            return value
        try:
            return {**value, "group_size": Branching.model_validate(branching).total}
        except ValidationError:  # this fault is reported with its key when the section is read
            return value

    @model_validator(mode="after")
    def _has_one_size(self) -> Self:
        if self.branching and self.branching.total != self.group_size:
            raise ValueError(
                f"got group_size {self.group_size} and branching.total {self.branching.total}; "
                "remove group_size, or set both to the same number"
            )
        return self

    @property
    def beginnings(self) -> int:
        """The number of episodes of a problem that are always sampled from the prompt.

        The problem's other episodes can be forks.
        """
        branching = self.branching
        return branching.init if branching and branching.mode != "never" else self.group_size

    @property
    def beginnings_of_shard(self) -> int:
        """The number of episodes in a full shard (batch) that are always sampled from prompts.

        The shard's other episodes can be forks. With forks, all episodes of a problem are in the
        same shard. Without forks, the result is `shard`.
        """
        if self.beginnings == self.group_size:
            return self.shard
        return max(1, self.shard // self.group_size) * self.beginnings


class Evaluate(Section):
    """The evaluation on held-out problems.

    The test split and the datasets in `datasets` are evaluated before and after training. With
    `every: 5`, the validation split is evaluated after every 5 steps. With `every: 0`, that split
    is never evaluated. `pass_at` has values of k for pass@k. If `by` is a key of `Problem.facts`,
    success is also reported for each value of this key.
    """

    goal: str = Field(
        default="",
        description="reward that decides success (solved at 1 or more); required with several",
    )
    every: Annotated[int, Field(ge=0)] = Field(default=0, json_schema_extra=RESUMABLE)
    episodes: Positive = 1
    temperature: Annotated[float, Field(ge=0)] = 1.0
    pass_at: tuple[Positive, ...] = Field(default=(), json_schema_extra=RESUMABLE)
    by: str = Field(default="", json_schema_extra=RESUMABLE)
    datasets: dict[str, HeldOutDataset] = Field(default_factory=dict, json_schema_extra=RESUMABLE)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that a run uses: train and test, and also validation if `every` is above 0."""
        return SPLITS if self.every else ("train", "test")

    @model_validator(mode="after")
    def _has_enough_episodes(self) -> Self:
        if self.pass_at and max(self.pass_at) > self.episodes:
            raise ValueError(
                f"pass_at: got {max(self.pass_at)}, but evaluate.episodes is {self.episodes}. Set "
                f"evaluate.episodes={max(self.pass_at)}: pass@k needs k episodes per problem"
            )
        for name in self.datasets:
            if name in SPLITS or not re.fullmatch(NAME, name):
                raise ValueError(
                    f"datasets: got the name {name!r}. Use only letters, digits, '.', '_' and "
                    "'-', and do not use the name of a split (train, validation, test)"
                )
        return self
