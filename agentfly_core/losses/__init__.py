"""What each sampled token contributes to the loss, before its weight: one short file a loss."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from agentfly_core.config.section import BY_NAME
from agentfly_core.rl.cispo import CISPO
from agentfly_core.rl.clip import Clip
from agentfly_core.rl.dppo import DPPO
from agentfly_core.rl.gspo import GSPO
from agentfly_core.rl.reinforce import Reinforce
from agentfly_core.rl.sapo import SAPO

__all__ = ["CISPO", "DPPO", "GSPO", "SAPO", "Clip", "PolicyLoss", "Reinforce"]

PolicyLoss = Annotated[Clip | GSPO | CISPO | SAPO | DPPO | Reinforce, Field(discriminator="use"), BY_NAME]
"""In an experiment file `{use: clip, high: 0.28}`, or `gspo` for its defaults."""
