"""One shard of a stage's episodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentfly_core.pipeline.workers.job import RolloutJob
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.store.artifact import ArtifactKey, Pointer
from agentfly_core.system.progress import Progress


@dataclass(frozen=True)
class Shard:
    """Shard 0, 1, ... of the `episodes` of a stage: `Shard("rollout", 7, specs, 2)`."""

    stage: str
    step: int
    episodes: Sequence[EpisodeSpec]
    number: int

    def job(self, target: ArtifactKey, policy: Pointer, version: int, size: int) -> RolloutJob:
        """Its job with a policy; `version` labels the tokens, `size` is that of a shard."""
        start = self.number * size
        progress = Progress(self.stage, self.step, start, len(self.episodes))
        pointer = Pointer(policy.uri, policy.digest)
        mine = tuple(self.episodes[start : start + size])
        return RolloutJob(target, pointer, version, mine, progress)
