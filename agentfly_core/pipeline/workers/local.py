"""Play jobs (batches of episodes) in this process.

This process is a worker process, or with `site.workers: 0` the process of the agentfly command.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agentfly_core.authoring.event_loop import forget_interrupt, interrupt
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.memory import memory_folder
from agentfly_core.inference.sampler import Sampler
from agentfly_core.models import adapter_artifact
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline.demonstrations import DemonstrationPlayer
from agentfly_core.pipeline.playing import play_shard, rollout_spec, watching
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.scoring import check_rewards
from agentfly_core.pipeline.workers.job import NO_BLAME, Blame, DemonstrationJob, Job, RolloutJob
from agentfly_core.records.dataset import split
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.rules import Frozen, FrozenPolicy
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.stage_metrics import timing
from agentfly_core.store.store import Store


@dataclass(frozen=True, slots=True)
class LocalServices:
    """The services with which episodes are played in this process.

    Example: `LocalServices(VLLM(...), resources, tokenizer, {"critic": FrozenPolicy(...)})`. All
    policies use the same tokenizer. `frozen` maps each role (group of speakers) that is not trained
    to its policy or to a chat service (an LLM behind an HTTP API).
    """

    sampler: Sampler
    resources: ResourceManager
    tokenizer: PreTrainedTokenizerBase
    frozen: Mapping[str, Frozen]

    def load(self, store: Store, policy: Pointer, version: int) -> None:
        """Load a policy into the sampler. Later sampled tokens are labelled with `version`.

        Raises ServiceLost if the sampler dies.
        """
        folder, base = adapter_artifact.folders(store, policy)
        self.sampler.load(folder, version, base)

    def rest(self) -> None:
        """Release the GPU memory of all samplers for the learner. Raises ServiceLost if a sampler
        has died.
        """
        self.sampler.rest()
        for speaker in self.frozen.values():
            if isinstance(speaker, FrozenPolicy):
                speaker.sampler.rest()


@dataclass(frozen=True)
class LocalPlayer:
    """Plays jobs (batches of episodes) in turn: `LocalPlayer(experiment, services).do(job)`."""

    experiment: Experiment
    services: LocalServices
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def do(self, job: Job) -> Artifact:
        """Play a job's episodes with its policy, and publish them as an artifact; see JobPlayer."""
        with self._turn:
            metrics = self.load(job)
            return self.play(job, NO_BLAME, metrics)

    def rest(self) -> None:
        """Release the GPU memory of the samplers; see JobPlayer."""
        self.services.rest()

    def end(self) -> None:
        """If another thread is playing a job, cancel the job and wait until it has ended."""
        if self._turn.locked():
            interrupt()
            with self._turn:
                # cleared, because otherwise the interrupt would cancel the next job
                forget_interrupt()

    def load(self, job: Job) -> dict[str, float]:
        """Load the policy of a job. Return the loading time in seconds: `{"time/swap": 0.4}`.

        A job for demonstrations does not load a policy, so the result is empty.
        """
        metrics = dict[str, float]()
        if isinstance(job, RolloutJob):
            with timing(metrics, "time/swap"):
                self.services.load(self.experiment.store, job.policy, job.version)
        return metrics

    def play(self, job: Job, blame: Blame, metrics: Mapping[str, float]) -> Artifact:
        """Play the episodes of a job with the loaded policy, and publish them as an artifact.

        The metrics of the artifact include `metrics`. The episodes in `blame.failed` are not
        played, because they have killed or blocked a worker. The episodes in `blame.suspects` may
        have killed a worker, and are played one by one after all other episodes.
        """

        def make(folder: Path) -> Mapping[str, float]:
            if isinstance(job, DemonstrationJob):
                return self._demonstrate(job, blame, folder)
            return {**metrics, **self._play_shard(job, blame, folder)}

        return produce(self.experiment.store, job.target, make)

    def _rules(self, job: Job) -> RolloutSpec:
        whole, mixture, here = self.experiment.whole, self.experiment.mixture, self.services
        # a share of the limit, because several workers play jobs at the same time
        programs = -(-self.experiment.site.programs // max(1, self.experiment.site.workers))
        memory = memory_folder(self.experiment.store, job.memory) if job.memory else None
        return rollout_spec(whole, mixture, here.tokenizer, here.frozen, programs, memory)

    def _play_shard(self, job: RolloutJob, blame: Blame, folder: Path) -> Mapping[str, float]:
        here, progress = self.services, job.progress
        watch = watching(progress.stage, progress.step, progress.done, progress.total)
        gates, episodes = self.experiment.settings.gates, blame.mark(job.episodes)
        rules = self._rules(job)
        return play_shard(rules, gates, here.sampler, episodes, folder, watch, here.resources)

    def _demonstrate(self, job: DemonstrationJob, blame: Blame, folder: Path) -> dict[str, float]:
        """Play the demonstrations of a warm start.

        First play a few trial demonstrations; see `DemonstrationPlayer.rehearse` for its errors.
        Raises GateClosed if too many trial demonstrations cannot be scored. Also raises GateClosed
        if too many of the trial demonstrations or of all demonstrations fail.
        """
        here, settings = self.services, self.experiment.settings
        warm_start, gates = settings.warm_start, settings.gates
        assert warm_start is not None
        shown = DemonstrationPlayer(
            self._rules(job),
            here.tokenizer,
            split(self.experiment.store.open(job.data), "train"),
            warm_start,
            settings.quotas,
            settings.seed,
            gates.failed,
            blame,
        )
        rehearsed = shown.rehearse(here.resources)
        if self.experiment.whole.rewards:
            check_rewards(rehearsed, self.experiment.scores(rehearsed, rehearsed), gates.unscored)
        shown.play(warm_start.episodes, folder, here.resources)
        return {}
