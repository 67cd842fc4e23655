"""Players. A player is a policy that samples tokens, or a function that replies."""

from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.config.parts import WarmStart
from agentfly_core.config.reference import is_scripted
from agentfly_core.experiment.memory import MEMORY
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.records.trajectory import Problem
from agentfly_core.store.artifact import Pointer

RANDOM = "agentfly_core.inference.random_policy:random_policy"


@dataclass(frozen=True)
class ModelPlayer:
    """A policy that samples tokens: `ModelPlayer("run:demo@7", Pointer(...))`.

    `memory` is an artifact with the files that agents find in the folder `Episode.memory`. None
    means an empty folder.
    """

    reference: str
    policy: Pointer
    memory: Pointer | None = None

    @property
    def digests(self) -> dict[str, str]:
        """The digests of the policy and of the memory folder. Both are inputs of the episodes."""
        memory = {MEMORY: self.memory.digest} if self.memory else {}
        return {"policy": self.policy.digest, **memory}


@dataclass(frozen=True)
class Script:
    """A function that replies instead of a model: `Script("oracle", "my_shop:buys", buys)`."""

    reference: str
    path: str
    policy: ScriptedPolicy


Player = ModelPlayer | Script


def described(player: Player, model: str) -> str:
    """Describe a player (a policy or a function that replies) for the user.

    Examples: `base (nano:calculator)`, `oracle (my_shop:buys)`.
    """
    if isinstance(player, ModelPlayer):
        return f"{player.reference} ({model})" if player.reference == "base" else player.reference
    return player.path if player.reference == player.path else f"{player.reference} ({player.path})"


def oracle(
    experiment: str, warm_start: WarmStart | None, seed: int, problems: Sequence[Problem]
) -> Script:
    """Return the function that plays the demonstrations of an experiment's warm start.

    The setting `spoilt` of a warm start is the share of deliberate mistakes. The returned function
    makes no deliberate mistakes. Raises ValueError if the warm start does not name a function.
    """
    if warm_start is None or not is_scripted(warm_start.demonstrations):
        raise ValueError(
            f"{experiment} has no oracle, because warm_start names no function. To play a "
            "function of yours, give its import path: --policy my_file:policy."
        )
    path = warm_start.demonstrations
    # no deliberate mistakes, because an oracle must be right
    policy = policy_at(path, warm_start.settings, problems, seed, spoilt=0.0)
    return Script("oracle", path, policy)
