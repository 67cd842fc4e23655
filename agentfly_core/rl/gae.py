"""Generalised advantage estimation (GAE, arXiv 1506.02438), over sampled tokens or over turns.

Tensors are float64 [trajectories, longest], with one row for each trajectory and one column for
each sampled token. Prompts and tools' answers get no columns, so they do not cause a discount. The
value of a token is the critic's estimate before this token. After the last token, the value is 0.
The methods `estimate` return the advantages and the targets of the critic. Their argument `turns`
has the index of the turn of each token, and -1 for padding.
"""

from typing import Annotated, Literal

from pydantic import Field

from agentfly_core.config.section import BY_NAME, Section, Share
from agentfly_core.rl.advantage import first_of_turns, last_of_turns
from agentfly_core.rl.late import Tensor, torch


class TokenGAE(Section):
    """GAE over tokens: `delta_t = r_t + gamma V_(t+1) - V_t` and `A_t = delta_t + gamma lam
    A_(t+1)`.

    Example: four tokens have the values .1, .2, .3, .4, and the last token has the reward 1. With
    gamma 1 and lam .95, A_0 is 0.800.
    """

    use: Literal["token"] = "token"
    gamma: Share = 1.0
    lam: Share = 0.95

    def estimate(self, rewards: Tensor, values: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        everywhere = torch.ones_like(rewards, dtype=torch.bool)
        advantages = _backwards(rewards, values, everywhere, self.gamma, self.lam)
        return advantages, advantages + values


class TurnGAE(Section):
    """GAE over turns, as in Turn-PPO (arXiv 2512.17008).

    The reward of a turn is the sum of the rewards of the turn's tokens. The value of a turn is the
    value of the turn's first token. All tokens of a turn get the same advantage and the same target
    of the critic.
    """

    use: Literal["turn"] = "turn"
    gamma: Share = 1.0
    lam: Share = 0.95

    def estimate(self, rewards: Tensor, values: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        first, last = first_of_turns(turns), last_of_turns(turns)
        earned = torch.zeros_like(rewards)
        total = torch.zeros(len(rewards), dtype=rewards.dtype)
        for t in reversed(range(rewards.shape[1])):
            # summed backwards, so the first token of a turn gets the sum over the whole turn
            total = torch.where(last[:, t], 0.0, total) + rewards[:, t]
            earned[:, t] = total
        advantages = _backwards(earned, values, first, self.gamma, self.lam)
        return _held(advantages, first), _held(advantages + values, first)


class BilevelGAE(Section):
    """GAE over turns, then over the tokens of each turn (VAGEN, arXiv 2510.16907).

    The first GAE is over the last tokens of all turns, and gives the return of each turn. The
    second GAE is over the tokens of each turn. In the second GAE, the reward of a turn's last token
    is the return of the turn.
    """

    use: Literal["bilevel"] = "bilevel"
    gamma: Share = 1.0
    lam: Share = 1.0
    gamma_turn: Share = 0.95
    lam_turn: Share = 0.95

    def estimate(self, rewards: Tensor, values: Tensor, turns: Tensor) -> tuple[Tensor, Tensor]:
        last = last_of_turns(turns)
        # an advantage plus its value is an estimate of the return
        worth = _backwards(rewards, values, last, self.gamma_turn, self.lam_turn) + values
        earned = torch.where(last, worth, rewards)
        everywhere = torch.ones_like(last)
        advantages = _backwards(earned, values, everywhere, self.gamma, self.lam, apart=last)
        return advantages, advantages + values


GAE = Annotated[TokenGAE | TurnGAE | BilevelGAE, Field(discriminator="use"), BY_NAME]
"""The setting `gae`. In an experiment file, it is written as `token`, or as `{use: bilevel,
gamma_turn: 0.9}`.
"""


def _backwards(
    rewards: Tensor,
    values: Tensor,
    here: Tensor,
    gamma: float,
    lam: float,
    apart: Tensor | None = None,
) -> Tensor:
    """Compute GAE over the positions in the mask `here`. All other positions get 0.

    The recursion goes from the last position to the first. At a position in the mask `apart`, the
    value and the advantage of the next position count as 0.
    """
    sums = torch.zeros_like(rewards)
    value = torch.zeros(len(rewards), dtype=rewards.dtype)
    advantage = torch.zeros_like(value)
    for t in reversed(range(rewards.shape[1])):
        if apart is not None:
            value = value.masked_fill(apart[:, t], 0.0)
            advantage = advantage.masked_fill(apart[:, t], 0.0)
        # between two positions of `here`, the value and the advantage of the later one are kept
        now = rewards[:, t] + gamma * value - values[:, t] + gamma * lam * advantage
        value = torch.where(here[:, t], values[:, t], value)
        advantage = torch.where(here[:, t], now, advantage)
        sums[:, t] = torch.where(here[:, t], now, 0.0)
    return sums


def _held(values: Tensor, first: Tensor) -> Tensor:
    """Give all tokens of a turn the value of the turn's first token."""
    held = values.clone()
    for t in range(1, values.shape[1]):
        held[:, t] = torch.where(first[:, t], values[:, t], held[:, t - 1])
    return held
