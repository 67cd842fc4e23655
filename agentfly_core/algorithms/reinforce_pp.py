"""REINFORCE++ (arXiv 2501.03262): the advantage of a token is its return, normalised over the
batch.
"""

from dataclasses import dataclass, replace

from agentfly_core.config.section import Share
from agentfly_core.rl import (
    Advantages,
    Needs,
    Outcomes,
    PolicyGradient,
    RolloutBatch,
    sequences,
    whitened,
)
from agentfly_core.rl.gae import TokenGAE
from agentfly_core.rl.late import torch


@dataclass(frozen=True, kw_only=True)
class ReinforcePP(PolicyGradient):
    """The advantage is the normalised return of a token.

    The return is G_t = r_t + gamma G_(t+1) over the sampled tokens of a trajectory, where r_t is
    the reward of token t. With gamma 0.5, a reward of 1 on the last of three tokens gives the
    returns 0.25, 0.5, 1. The returns are then normalised to mean 0 and variance 1 over all sampled
    tokens of the batch.
    """

    gamma: Share = 1.0

    @property
    def needs(self) -> Needs:
        return replace(super().needs, compares_group=False)

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        rewards = outcomes.token_rewards
        layout, nothing = sequences(batch, len(rewards)), torch.zeros_like(rewards)
        # with lambda 1 and values of 0, GAE is the discounted return
        returns, _ = TokenGAE(gamma=self.gamma, lam=1.0).estimate(rewards, nothing, layout.turns)
        return Advantages.of(whitened(layout.scatter(returns), batch))
