"""Play modes: episodes as in training, or one after the other, so that a person can follow."""

from __future__ import annotations

from agentfly_core.inference.sampler import Sampler
from agentfly_core.records.play_record import ModeName
from agentfly_core.records.trajectory import Trajectory
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.runs.episodes import Decode


class Mode:
    """What a mode changes in sampler and rules, and which episodes it sees; this one does neither.

    `name` is what play.json calls it.
    """

    name: ModeName = "experiment"

    def sampler(self, sampler: Sampler, decode: Decode) -> Sampler:
        """The sampler to play with; `decode` gives the text of tokens, special ones shown."""
        return sampler

    def rules(self, spec: RolloutSpec) -> RolloutSpec:
        """The rules to play by."""
        return spec

    def ended(self, trajectory: Trajectory) -> None:
        """Hear of an episode that ended."""
