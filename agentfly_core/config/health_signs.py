"""Health signs: bounds of metrics. A metric beyond its bound is a sign that training fails."""

from collections.abc import Mapping
from typing import Self

from pydantic import model_validator

from agentfly_core.config.section import Positive, Section


class Sign(Section):
    """A bound of a metric: `Sign(metric="train/entropy", below=0.01, steps=3, stop=True)`.

    If the metric is beyond the bound in `steps` consecutive steps, a warning is logged. With
    `stop`, the run is stopped instead.
    """

    metric: str
    above: float | None = None
    below: float | None = None
    steps: Positive = 1
    stop: bool = False

    @model_validator(mode="after")
    def _one_bound(self) -> Self:
        if (self.above is None) == (self.below is None):
            raise ValueError("set exactly one of `above` and `below`")
        return self

    def seen(self, metrics: Mapping[str, float]) -> bool:
        """Whether the metric is beyond its bound. False if the metric was not measured."""
        value = metrics.get(self.metric)
        if value is None:
            return False
        return value > self.above if self.above is not None else value < (self.below or 0.0)

    def message(self, metrics: Mapping[str, float], steps: int) -> str:
        """Return the text of the warning: "train/entropy is 0.004, below 0.01, for 3 steps in a
        row".
        """
        bound = f"above {self.above:g}" if self.above is not None else f"below {self.below:g}"
        lasting = f", for {steps} steps in a row" if steps > 1 else ""
        return f"{self.metric} is {metrics[self.metric]:.3g}, {bound}{lasting}"


Signs = Mapping[str, Sign | None]
SIGNS: dict[str, Sign | None] = {
    # episodes and tool calls: faults of rewards and templates
    "unscored": Sign(metric="rollout/unscored", above=0.02),
    "zero_spread": Sign(metric="rollout/zero_spread_groups", above=0.95, steps=3),
    "bad_calls": Sign(metric="rollout/bad_call_share", above=0.5, steps=3),
    "history_rewrites": Sign(metric="rollout/history_rewrites", above=0.05),
    # the sampler and the learner compute different probabilities for the same tokens
    "mismatch": Sign(metric="mismatch/k3", above=0.05),
    # the policy has collapsed, or updates are too large
    "entropy": Sign(metric="train/entropy", below=0.001, steps=3),
    "grad_norm": Sign(metric="train/grad_norm_max", above=1000.0),
    "skipped_steps": Sign(metric="train/skipped_steps", above=0.0),
    "not_finite": Sign(metric="train/not_finite_share", above=0.0),
    "kl": Sign(metric="train/kl", above=0.5),
    "reward_fall": Sign(metric="rollout/reward_fall", above=0.3),
}
"""The default health signs. An experiment file can set a sign to `null` to remove it."""
