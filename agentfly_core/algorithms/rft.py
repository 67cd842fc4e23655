"""Rejection-sampling fine-tuning: the policy imitates its own successes (RAFT, arXiv 2304.06767;
RFT, arXiv 2308.01825).
"""

from dataclasses import dataclass

from agentfly_core.algorithms.sft import SFT
from agentfly_core.config.section import Positive
from agentfly_core.rl import Advantages, Outcomes, RolloutBatch, spread
from agentfly_core.rl.late import torch


@dataclass(frozen=True)
class RFT(SFT):
    """Supervised fine-tuning on the successful episodes of each problem.

    An episode is successful if its reward is at least `threshold`. At most `best` successful
    episodes of a problem are trained. Episodes with higher rewards are preferred.
    """

    threshold: float = 1.0
    best: Positive = 4

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Return the advantage 1 for tokens of successful trajectories, and 0 for all other tokens.

        If more than `best` episodes of a problem are successful, only the `best` episodes with the
        highest rewards get the advantage 1.
        """
        kept, reached = torch.zeros_like(outcomes.rewards), outcomes.reaching(self.threshold)
        for group in outcomes.groups:
            good = [i for i in group if i in reached]
            # the sort is stable, so of episodes with equal rewards, the first are selected
            good.sort(key=lambda i: -float(outcomes.rewards[i]))
            episodes = outcomes.episodes[good]
            best = list(dict.fromkeys(episodes.tolist()))[: self.best]
            kept[
                [i for i, episode in zip(good, episodes.tolist(), strict=True) if episode in best]
            ] = 1.0
        return Advantages.of(spread(kept, batch))
