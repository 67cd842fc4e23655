"""Worker processes that play a run's episodes. If a worker dies, the worker's job is repeated."""

import logging
import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from agentfly_core.experiment.user_code import code_of
from agentfly_core.inference.sampler import Sampler
from agentfly_core.models import adapter_artifact
from agentfly_core.pipeline.workers.connection import Death
from agentfly_core.pipeline.workers.job import Blame, Job, RolloutJob
from agentfly_core.pipeline.workers.messages import Setup
from agentfly_core.pipeline.workers.process import WorkerDied, WorkerProcess, worker
from agentfly_core.pipeline.workers.samplers import Samplers
from agentfly_core.store.artifact import Artifact, Pointer
from agentfly_core.store.stage_metrics import timing
from agentfly_core.store.store import Store
from agentfly_core.system.service import end_orphans

MOST_DEATHS = 3
logger = logging.getLogger(__name__)


class WorkerLost(RuntimeError):
    """Workers died repeatedly during a job, and the episode that caused this is unknown."""


class OwnSamplers:
    """The samplers of workers that have one sampler each.

    Each worker loads policies and frees memory itself, so the methods of this class do nothing. The
    subclass ServedSampler is for one sampler that all workers share.
    """

    @contextmanager
    def loaded(self, job: Job) -> Iterator[Mapping[str, float]]:
        """Keep the policy of a job loaded until the end of the `with` block.

        Yields metrics: `{"time/swap": 0.4}` with the loading time in seconds, or an empty dict.
        """
        yield {}

    def rest(self) -> None:
        """Release GPU memory for the learner. Raises ServiceLost if the sampler has died."""


class ServedSampler(OwnSamplers):
    """One sampler for all workers. The sampler's policy changes only while no job is running."""

    def __init__(self, sampler: Sampler, store: Store) -> None:
        self._sampler, self._store = sampler, store
        self._turn, self._changed = threading.Lock(), threading.Condition()
        self._loaded: tuple[Pointer, int] | None = None
        self._playing = 0

    @contextmanager
    def loaded(self, job: Job) -> Iterator[Mapping[str, float]]:
        metrics = dict[str, float]()
        with self._turn:
            if isinstance(job, RolloutJob):
                with timing(metrics, "time/swap"):
                    self._load(job.policy, job.version)
            with self._changed:
                # while `_turn` is held, because otherwise another job could load its policy before
                # this job begins
                self._playing += 1
        try:
            yield metrics
        finally:
            with self._changed:
                self._playing -= 1
                self._changed.notify_all()

    def rest(self) -> None:
        self._sampler.rest()

    def _load(self, policy: Pointer, version: int) -> None:
        if self._loaded != (policy, version):
            with self._changed:
                self._changed.wait_for(lambda: not self._playing)
        folder, base = adapter_artifact.folders(self._store, policy)
        self._sampler.load(folder, version, base)
        self._loaded = policy, version


class WorkerPool:
    """Plays several jobs in parallel. Each worker plays one job at a time.

    Example: `WorkerPool(store, ServedSampler(...), [WorkerProcess(...)]).do(job)`.
    """

    def __init__(
        self, store: Store, sampler: OwnSamplers, processes: Sequence[WorkerProcess]
    ) -> None:
        self._store, self._sampler = store, sampler
        self._idle: queue.LifoQueue[WorkerProcess] = queue.LifoQueue()
        for process in processes:
            self._idle.put(process)

    def do(self, job: Job) -> Artifact:
        """Play the job's episodes in the next idle worker, and return the published artifact.

        Raises the same errors as `JobPlayer.do`.
        """
        process = self._idle.get()
        try:
            with self._sampler.loaded(job) as metrics:
                return self._store.resolve(self._done(process, job, metrics))
        finally:
            self._idle.put(process)

    def rest(self) -> None:
        """Release the GPU memory of the samplers for the learner.

        Raises ServiceLost if a sampler has died.
        """
        self._sampler.rest()

    def _done(self, process: WorkerProcess, job: Job, metrics: Mapping[str, float]) -> Pointer:
        """Play a job, and repeat it after the death of its worker.

        Episodes that killed a worker are not played again. Raises WorkerLost if
        MOST_DEATHS workers died and it is unknown which episodes killed them.
        """
        blame, deaths = Blame.stored(self._store, job.target), 0
        while True:
            try:
                return process.do(job, blame, metrics)
            except WorkerDied as died:
                death = died.death
            if call := death.culprit(blame.suspects):
                cause = f"{call.what} {death.how}"
                logger.warning(
                    "An episode failed: %s; the other episodes of its batch restart.", cause
                )
                blame = blame.with_failed(self._store, job.target, call.episode, cause)
                continue
            deaths += 1
            if deaths == MOST_DEATHS:
                raise WorkerLost(_lost(death))
            logger.warning("A worker %s; its batch of episodes is played again.", death.how)
            # a single SIGKILL may come from outside, so episodes are suspected only after a second
            # death
            if death.certain or deaths > 1:
                blame = replace(blame, suspects=death.suspects)


def _lost(death: Death) -> str:
    names = dict.fromkeys(call.what for call in (*death.running, *death.calls))
    calls = ", ".join(names) or "no call"
    episodes = ", ".join(death.suspects) or "none"
    return (
        f"{MOST_DEATHS} workers died during one job; the last worker {death.how}. Unfinished "
        f"calls: {calls}. Suspected episodes: {episodes}. The logs of the workers are "
        "worker-*.log beside the run's other logs."
    )


@contextmanager
def worker_pool(
    samplers: Samplers, model: Pointer, tokenizer: str, server: str, owner: str, logs: Path
) -> Iterator[WorkerPool]:
    """Start worker processes for a run's episodes. Workers run until the end of the `with` block.

    The site (the machine's settings) has the number of workers. `owner` is the uid of the run.
    `server` is the address of the vLLM server, or "" if each worker has its own sampler.
    `tokenizer` is the import path of the class of the model's tokenizer.

    Raises RuntimeError if an environment is still in use when the `with` block ends.
    """
    experiment = samplers.experiment
    experiment.require_speakers_unchanged()
    # workers of a killed session of this run may still be running
    end_orphans(owner)
    policies = ServedSampler(samplers.served(server), experiment.store) if server else OwnSamplers()
    settings, site, store = experiment.settings, experiment.site, experiment.store
    setup = Setup(
        name=experiment.name,
        settings=settings.model_dump(mode="json"),
        code=code_of(settings, experiment.tasks).get("rollout", {}),
        site=site.model_dump(mode="json"),
        store=store.uri,
        cache=str(store.root.parent),
        claim=store.remote.claim if store.remote else {},
        pinned=experiment.frozen,
        model=Pointer(model.uri, model.digest),
        tokenizer=tokenizer,
        sampler=server,
        # workers must import the author's modules from the same folders
        path=tuple(sys.path),
        folder=os.getcwd(),
    )
    budgets = {name: chat.budget for name, chat in samplers.chats.items()}
    with ExitStack() as stack:
        processes = [
            stack.enter_context(worker(number, setup, budgets, owner, logs))
            for number in range(1, site.workers + 1)
        ]
        yield WorkerPool(store, policies, processes)
