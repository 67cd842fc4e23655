"""Jobs that play episodes. Jobs are plain data that can be sent to other processes."""

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

    `version` labels the sampled tokens. `progress` is the stage's progress before this shard. If
    `memory` is None, the memory is empty.
    """

    target: ArtifactKey
    policy: Pointer
    version: int
    episodes: tuple[EpisodeSpec, ...]
    progress: Progress
    memory: Pointer | None = None


@dataclass(frozen=True, slots=True)
class DemonstrationJob:
    """A job to play the demonstrations of the warm start: `DemonstrationJob(key, data)`."""

    target: ArtifactKey
    data: Pointer
    memory: Pointer | None = None


@dataclass(frozen=True)
class Shard:
    """A shard of a stage's `episodes`: `Shard("rollout", 7, specs, 2)` is the third of step 7."""

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
        """Make the job that plays this shard with a policy.

        `version` labels the tokens, and `size` is the number of episodes per shard.
        """
        start = self.number * size
        before = self.episodes[:start]
        done, total = (sum(one.leaves for one in some) for some in (before, self.episodes))
        progress = Progress(self.stage, self.step, done, total)
        pointer = Pointer(policy.uri, policy.digest)
        mine = tuple(self.episodes[start : start + size])
        return RolloutJob(target, pointer, version, mine, progress, memory)


Job = RolloutJob | DemonstrationJob


class JobPlayer(Protocol):
    """Plays the jobs of a session, in this process or in workers."""

    def do(self, job: Job) -> Artifact:
        """Play a job and publish its artifact.

        Raises SamplerLost, PromptTooLong, NoReply, EpisodeBroken, GateClosed and WorkerLost.
        """

    def rest(self) -> None:
        """Release the samplers' GPU memory for the learner. Raises SamplerLost."""


@dataclass(frozen=True, slots=True)
class Blame:
    """Episodes of a job that may have killed a worker.

    `failed` has the cause for each episode id that certainly killed a worker: `{"9f2c01d4": "The
    tool 'search' ended its process: SIGSEGV"}`. These episodes fail without being played.
    `suspects` has the ids of episodes that may have killed a worker. They are played after the
    other episodes, one at a time.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    suspects: Sequence[str] = ()

    @classmethod
    def stored(cls, store: Store, target: ArtifactKey) -> Blame:
        """Read what earlier attempts at the job, also by other processes, have stored."""
        written = store.read_json(_uri(target))
        return cls(written["failed"] if written else {})

    @classmethod
    def held(cls, calls: HeldCalls) -> Blame:
        """Blame the episodes whose calls held the event loop."""
        return cls({episode: reason for (_, episode), reason in calls.items()})

    def with_failed(self, store: Store, target: ArtifactKey, episode: str, cause: str) -> Blame:
        """Store that an episode killed a worker, and return the new blame."""
        # stored, because a resumed run must fail the same episodes without losing another worker
        failed = {**self.failed, episode: cause}
        store.write_json(_uri(target), {"failed": failed})
        return Blame(failed, [one for one in self.suspects if one != episode])

    def mark(self, episodes: Sequence[EpisodeSpec]) -> list[EpisodeSpec]:
        """Return the episodes, marked as failed or suspect."""
        return [replace(one, blamed=self.failed, suspects=self.suspects) for one in episodes]


NO_BLAME = Blame()


def _uri(target: ArtifactKey) -> str:
    return f"artifacts/deaths/{target.key}.json"
