"""Jobs. A job contains episodes to play. It is plain data that can be sent to another process."""

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
    """A batch of episodes (a shard) to play with a policy.

    Example: `RolloutJob(key, Pointer("runs/demo/steps/000006/policy", "9f2c...e1"), 6,
    (EpisodeSpec(...), ...), Progress("rollout", 7, done=0, total=64))`. `target` is the key of the
    artifact with the played episodes. Sampled tokens are labelled with `version`. `progress` counts
    the episodes of the stage that are finished when this batch begins. `memory` is the artifact
    with the memory folder (`Episode.memory`) of the agent; None means an empty folder.
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


Job = RolloutJob | DemonstrationJob


class JobPlayer(Protocol):
    """Plays the episodes of jobs, either in this process or in worker processes."""

    def do(self, job: Job) -> Artifact:
        """Play a job and publish its artifact.

        Raises

        - ServiceLost if the sampler dies
        - PromptTooLong if a first prompt leaves no room for a reply
        - NoReply if a scripted policy (a Python function) fails or a chat service refuses a request
        - EpisodeBroken for an error in a template or a sampler
        - GateClosed if too many episodes fail
        - WorkerLost if workers die repeatedly
        """

    def rest(self) -> None:
        """Release the GPU memory of the samplers for the learner. Raises ServiceLost if a sampler
        has died.
        """


@dataclass(frozen=True, slots=True)
class Blame:
    """Lists the episodes of a job that killed a worker, and the episodes that may have done so.

    `failed` maps the ids of episodes that certainly killed a worker to the cause: `{"9f2c01d4":
    "The tool 'search' ended its process: SIGSEGV"}`. These episodes fail without being played.
    `suspects` contains the ids of episodes that may have killed a worker. They are played one by
    one after the other episodes.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    suspects: Sequence[str] = ()

    @classmethod
    def stored(cls, store: Store, target: ArtifactKey) -> Blame:
        """Read which episodes killed a worker in earlier attempts at the job.

        The earlier attempts may belong to other processes.
        """
        written = store.read_json(_uri(target))
        return cls(written["failed"] if written else {})

    @classmethod
    def held(cls, calls: HeldCalls) -> Blame:
        """Return a Blame that lists, in `failed`, the episodes that blocked the event loop.

        `calls` maps each call that blocked the event loop to its error message.
        """
        return cls({episode: reason for (_, episode), reason in calls.items()})

    def with_failed(self, store: Store, target: ArtifactKey, episode: str, cause: str) -> Blame:
        """Record that an episode killed a worker. Return a Blame that includes this episode."""
        # stored, because in a resumed run the same episodes must fail without killing another
        # worker
        failed = {**self.failed, episode: cause}
        store.write_json(_uri(target), {"failed": failed})
        return Blame(failed, [one for one in self.suspects if one != episode])

    def mark(self, episodes: Sequence[EpisodeSpec]) -> list[EpisodeSpec]:
        """Copy the specs of episodes, and add the two fields of this object to the copies.

        In each copy, the field `blamed` has the value of `failed`, and the field `suspects` has the
        value of `suspects`.
        """
        return [replace(one, blamed=self.failed, suspects=self.suspects) for one in episodes]


NO_BLAME = Blame()


def _uri(target: ArtifactKey) -> str:
    return f"artifacts/deaths/{target.key}.json"
