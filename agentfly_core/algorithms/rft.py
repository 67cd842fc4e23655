"""Rejection-sampling fine-tuning: imitate the policy's own successes (RAFT 2304.06767, RFT
2308.01825).
"""

from dataclasses import dataclass

from agentfly_core.algorithms.sft import SFT
from agentfly_core.config.section import Positive
from agentfly_core.rl.advantage import spread
from agentfly_core.rl.batch import RolloutBatch
from agentfly_core.rl.interface import Advantages
from agentfly_core.rl.late import torch
from agentfly_core.rl.outcomes import Outcomes


@dataclass(frozen=True)
class RFT(SFT):
    """SFT on the successes of each problem: its `best` episodes with the highest rewards, if the
    reward is at least `threshold`.
    """

    threshold: float = 1.0
    best: Positive = 4

    def estimate_advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        """Return 1 for the tokens of selected trajectories, else 0."""
        kept, reached = torch.zeros_like(outcomes.rewards), outcomes.reaching(self.threshold)
        for group in outcomes.groups:
            good = [i for i in group if i in reached]
            # a stable sort: of episodes with equal rewards, the first are selected
            good.sort(key=lambda i: -float(outcomes.rewards[i]))
            episodes = outcomes.episodes[good]
            best = list(dict.fromkeys(episodes.tolist()))[: self.best]
            kept[
                [i for i, episode in zip(good, episodes.tolist(), strict=True) if episode in best]
            ] = 1.0
        return Advantages.of(spread(kept, batch))
