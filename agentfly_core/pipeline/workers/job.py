"""Jobs that play episodes, as plain data for other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from agentfly_core.authoring.event_loop import HeldCalls
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.progress import Progress


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """A shard to play: `RolloutJob(key, Pointer("runs/demo/steps/000006/policy", "9f2c...e1"), 6,
    (EpisodeSpec(...), ...), Progress("rollout", 7, done=0, total=64))`.

    `version` labels the sampled tokens; `progress` is the stage's progress before the shard.
    `memory` is None for an empty one.
    """

    target: ArtifactKey
    policy: Pointer
    version: int
    episodes: tuple[EpisodeSpec, ...]
    progress: Progress
    memory: Pointer | None = None


@dataclass(frozen=True, slots=True)
class DemonstrationJob:
    """The warm start's demonstrations to play: `DemonstrationJob(key, data)`."""

    target: ArtifactKey
    data: Pointer
    memory: Pointer | None = None


@dataclass(frozen=True)
class Shard:
    """Shard 0, 1, ... of the `episodes` of a stage: `Shard("rollout", 7, specs, 2)`."""

    stage: str
    step: int
    episodes: Sequence[EpisodeSpec]
    number: int

    def job(
        self,
        target: ArtifactKey,
        policy: Pointer,
        version: int,
        size: int,
        memory: Pointer | None = None,
    ) -> RolloutJob:
        """Its job with a policy; `version` labels the tokens, `size` is that of a shard."""
        start = self.number * size
        progress = Progress(self.stage, self.step, start, len(self.episodes))
        pointer = Pointer(policy.uri, policy.digest)
        mine = tuple(self.episodes[start : start + size])
        return RolloutJob(target, pointer, version, mine, progress, memory)


Job = RolloutJob | DemonstrationJob


class JobPlayer(Protocol):
    """Plays the jobs of a session, in this process or in workers."""

    def do(self, job: Job) -> Artifact:
        """Play and publish; raises SamplerLost, PromptTooLong, NoReply, EpisodeBroken, GateClosed
        and WorkerLost.
        """

    def rest(self) -> None:
        """Release the GPU memory of samplers for the learner; raises SamplerLost."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Episodes of a job that may have killed a worker.

    `failed` maps the ids of episodes that certainly did to the cause: `{"9f2c01d4": "The tool
    'search' ended its process: SIGSEGV"}`. They fail without being played. `suspects` are the ids
    of other candidates, which are played alone after the other episodes.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    suspects: Sequence[str] = ()

    @classmethod
    def stored(cls, store: Store, target: ArtifactKey) -> Blame:
        """The blame stored by earlier attempts, also in other processes."""
        written = store.read_json(_uri(target))
        return cls(written["failed"] if written else {})

    @classmethod
    def held(cls, calls: HeldCalls) -> Blame:
        """Fail the episodes of calls that held the event loop."""
        return cls({episode: reason for (_, episode), reason in calls.items()})

    def with_failed(self, store: Store, target: ArtifactKey, episode: str, cause: str) -> Blame:
        """Store that an episode ended a worker."""
        # stored: a resumed run fails the same episodes without another dead worker
        failed = {**self.failed, episode: cause}
        store.write_json(_uri(target), {"failed": failed})
        return Blame(failed, [one for one in self.suspects if one != episode])

    def mark(self, episodes: Sequence[EpisodeSpec]) -> list[EpisodeSpec]:
        """The episodes with their marks."""
        return [replace(one, blamed=self.failed, suspects=self.suspects) for one in episodes]


NO_BLAME = Blame()


def _uri(target: ArtifactKey) -> str:
    return f"artifacts/deaths/{target.key}.json"
