"""ReMax (arXiv 2310.10505): REINFORCE with the reward of a greedy episode as the baseline."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from agentfly_core.rl import Advantages, Needs, Outcomes, PolicyGradient, RolloutBatch, spread
from agentfly_core.rl.aggregation import Aggregation, SeqMeanTokenSum
from agentfly_core.rl.policy_loss import Clip, PolicyLoss


@dataclass(frozen=True, kw_only=True)
class ReMax(PolicyGradient):
    """The advantage is the reward minus the reward of a greedy episode of the same problem.

    The greedy episode is not in the training batch. If the greedy episode of a problem is unscored,
    the problem is skipped. Raises ValueError if all problems are skipped.

    The default loss is a clipped ratio. In the first optimizer step, its gradient is equal to the
    gradient of the paper's loss -A log p.
    """

    policy_loss: PolicyLoss = Clip()
    aggregation: Aggregation = SeqMeanTokenSum()

    @property
    def needs(self) -> Needs:
        return replace(super().needs, compares_group=False, greedy_episode=True)

    def measures(self, outcomes: Outcomes, batch: RolloutBatch) -> Mapping[str, float]:
        """Return the metrics of the base class, and `train/without_baseline`.

        This metric is the share of trajectories of problems without a scored greedy episode.
        """
        missing = outcomes.baselines.isnan().double()
        return {
            **super().measures(outcomes, batch),
            "train/without_baseline": float(missing.mean()),
        }

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        better = outcomes.rewards - outcomes.baselines
        if len(better) and bool(better.isnan().all()):
            raise ValueError(
                "ReMax needs a scored greedy episode for each problem, but no greedy episode has "
                "a score. `agentfly show` prints why."
            )
        # problems without a baseline get the advantage 0, so they are skipped
        return Advantages.of(spread(better.nan_to_num(0.0), batch))
