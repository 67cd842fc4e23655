"""Advantages, losses, KL, importance sampling, aggregation, batches: for authors of algorithms."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from agentfly_core.rl.advantage import (
        centred,
        sequences,
        spread,
        standardised,
        whitened,
        within_groups,
    )
    from agentfly_core.rl.batch import RolloutBatch
    from agentfly_core.rl.interface import Advantages, Loss, Needs, Outputs
    from agentfly_core.rl.outcomes import Outcomes
    from agentfly_core.rl.policy_gradient import PolicyGradient

_ADVANTAGE, _INTERFACE = "agentfly_core.rl.advantage", "agentfly_core.rl.interface"
_HOMES = {
    "Advantages": _INTERFACE,
    "Loss": _INTERFACE,
    "Needs": _INTERFACE,
    "Outcomes": "agentfly_core.rl.outcomes",
    "Outputs": _INTERFACE,
    "PolicyGradient": "agentfly_core.rl.policy_gradient",
    "RolloutBatch": "agentfly_core.rl.batch",
    "centred": _ADVANTAGE,
    "sequences": _ADVANTAGE,
    "spread": _ADVANTAGE,
    "standardised": _ADVANTAGE,
    "whitened": _ADVANTAGE,
    "within_groups": _ADVANTAGE,
}
__all__ = [
    "Advantages",
    "Loss",
    "Needs",
    "Outcomes",
    "Outputs",
    "PolicyGradient",
    "RolloutBatch",
    "centred",
    "sequences",
    "spread",
    "standardised",
    "whitened",
    "within_groups",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
