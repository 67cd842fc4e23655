"""The reward for opening a `Vault`, the environment of this recipe."""

from agentfly_core import Trajectory, reward
from agentfly_core.recipes.arpo.vault import Vault


@reward
async def opened(trajectory: Trajectory, *, vault: Vault) -> float:
    """1 if the vault is open, else 0."""
    return float(vault.opened)
