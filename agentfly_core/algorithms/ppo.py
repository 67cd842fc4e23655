"""Proximal policy optimisation (PPO, arXiv 1707.06347) with a critic."""

from dataclasses import dataclass, replace
from typing import Literal

from pydantic import PositiveFloat

from agentfly_core.rl import (
    Advantages,
    Loss,
    Needs,
    Outcomes,
    Outputs,
    PolicyGradient,
    RolloutBatch,
    sequences,
    whitened,
)
from agentfly_core.rl.gae import GAE, TokenGAE
from agentfly_core.rl.late import torch


@dataclass(frozen=True, kw_only=True)
class PPO(PolicyGradient):
    """Generalised advantage estimation (GAE) with a critic.

    The advantages are normalised to mean 0 and variance 1 over all sampled tokens. With `critic:
    head`, the critic is a head on the last layer of the policy. With `critic: model`, the critic is
    a separate model that starts as a copy of the policy. The learning rate of the critic is
    `critic_rate` times the learning rate of the policy.

    The critic's loss is `0.5 max((V - R)^2, (clip(V, V_old +- value_clip) - R)^2)`. V is the
    critic's current estimate, V_old is the estimate before the update, and R is the return. The
    total loss is the policy loss plus `value_weight` times the critic's loss.
    """

    gae: GAE = TokenGAE()
    critic: Literal["head", "model"] = "head"
    critic_rate: PositiveFloat = 10.0
    value_weight: PositiveFloat = 0.5
    value_clip: PositiveFloat = 0.2

    @property
    def needs(self) -> Needs:
        """The requirements of PPO.

        PPO needs a critic. Rows of the batch in which all advantages are 0 also have a gradient,
        because they still train the critic.
        """
        needs = replace(super().needs, critic=self.critic, critic_rate=self.critic_rate)
        return replace(
            needs, compares_group=False, signals_before_advantages=True, trains_all_rows=True
        )

    def advantages(self, outcomes: Outcomes, batch: RolloutBatch) -> Advantages:
        layout = sequences(batch, len(outcomes.rewards))
        values = layout.gather(batch.old_values).double()
        advantages, returns = self.gae.estimate(outcomes.token_rewards, values, layout.turns)
        return Advantages(
            whitened(layout.scatter(advantages), batch), layout.scatter(returns).float()
        )

    def loss(self, outputs: Outputs, batch: RolloutBatch) -> Loss:
        policy = super().loss(outputs, batch)
        values, old, right = outputs.values, batch.old_values, batch.returns
        near = old + (values - old).clamp(-self.value_clip, self.value_clip)
        # the larger error, because clipping must not hide that a value has become worse
        error = 0.5 * torch.maximum((values - right).square(), (near - right).square())
        total = policy.total + self.value_weight * (batch.weight * error).sum()
        return replace(
            policy, total=total, metrics={**policy.metrics, "train/value_loss": error.detach()}
        )
