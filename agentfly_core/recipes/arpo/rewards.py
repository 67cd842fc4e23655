"""The reward of an opened vault."""

from agentfly_core import Trajectory, reward
from agentfly_core.recipes.arpo.vault import Vault


@reward
async def opened(trajectory: Trajectory, *, vault: Vault) -> float:
    """1 for an opened vault, else 0."""
    return float(vault.opened)
