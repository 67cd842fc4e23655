"""How a chat service fails; loads nothing of what asks it."""

from __future__ import annotations

from agentfly_core.authoring.environment import ServiceFailure


class EndpointLost(ServiceFailure):
    """A service gave no answer, however often it was asked."""


class EndpointRefused(ValueError):
    """A service refuses what it is asked: a wrong key, model or field."""


class BudgetSpent(ValueError):
    """A service was asked all that it may be asked; the message names the setting to raise."""
