"""An experiment as it runs: its settings, the objects that they name, its site and its store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentfly_core.config.experiment import Settings
from agentfly_core.config.import_path import at
from agentfly_core.config.reference import LastPolicy, RunPolicy, model_reference, run_step
from agentfly_core.config.site import Site
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_policies import Parent, digest_of_speaker, of_run
from agentfly_core.experiment.task import Task, import_tasks, together
from agentfly_core.experiment.user_code import Code, code_of
from agentfly_core.records.dataset import shards_of_split
from agentfly_core.store.store import ArtifactKey, Pointer, Store

if TYPE_CHECKING:
    from agentfly_core.rl.interface import Algorithm


@dataclass(frozen=True)
class Experiment:
    """An experiment and the place where it runs: `Experiment.of("quickstart", settings,
    {"seed": "default", ...}, Site(), Store.at(".", cache))`.

    `tasks` has the key `single` in an experiment without a mixture; `whole` is all of them
    together. `pinned` are the `frozen` that a run began with.
    """

    name: str
    settings: Settings
    origin: Mapping[str, str]
    algorithm: Algorithm
    whole: Task
    tasks: Mapping[str, Task]
    site: Site
    store: Store
    pinned: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        name: str,
        settings: Settings,
        origin: Mapping[str, str],
        site: Site,
        store: Store,
        pinned: Mapping[str, str] | None = None,
    ) -> Experiment:
        """Import what the settings name; raises ValueError, with the key, for what does not fit."""
        tasks = import_tasks(settings)
        whole, algorithm = together(settings, tasks), settings.algorithm.make()
        return cls(name, settings, origin, algorithm, whole, tasks, site, store, pinned)

    def on(self, settings: Settings) -> Experiment:
        """The same place and parts, with the data, the model or the steps of other settings."""
        each = settings.each
        tasks = {name: replace(task, settings=each[name]) for name, task in self.tasks.items()}
        whole = replace(self.whole, settings=settings)
        return replace(self, settings=settings, whole=whole, tasks=tasks)

    @property
    def greedy(self) -> bool:
        """Whether each problem of a step is played once more, greedily, as a baseline."""
        return self.algorithm.needs.greedy_episode

    @property
    def code(self) -> Code:
        """The author's code as it is now; raises ValueError for a module without a file."""
        return code_of(self.settings, self.tasks)

    @property
    def parent(self) -> Parent | None:
        """The policy that a fork continues from, or that a model reference `run:NAME` or
        `run:NAME@STEP` names, or None.
        """
        if fork := self.settings.fork:
            return of_run(self.store, RunPolicy(fork.run, fork.step), "fork")
        with at("model"):
            model = model_reference(self.settings.model)
        return (
            of_run(self.store, model, "model")
            if isinstance(model, RunPolicy | LastPolicy)
            else None
        )

    @property
    def reference(self) -> Pointer | None:
        """The policy of another run, run:NAME@STEP, that the algorithm's KL penalty names, if it
        does.
        """
        where = self.algorithm.needs.reference
        if where is None or (policy := run_step(where)) is None:
            return None
        return of_run(self.store, policy, "algorithm.kl.reference").policy

    @property
    def frozen(self) -> Mapping[str, str]:
        """By role, the digest of who speaks for each frozen speaker, in a run the one that it began
        with; raises ValueError for one that is not there.
        """
        if self.pinned is not None:
            return self.pinned
        speakers = self.settings.agent.speakers
        return {
            role: digest_of_speaker(self.store, self.site, role, who)
            for role, who in speakers.items()
        }

    @property
    def divided_site(self) -> Site:
        """The site as the sampler's and the learner's services are to take it.

        On CPU each has half of the threads where both work at the same time. With all of them a
        step of SmolLM2-135M on two cores took 12.2 to 13.4 s instead of 9.9 to 10.6 s.
        """
        together = self.settings.rollout.max_staleness > 0 and self.site.device == "cpu"
        each = {"threads": max(1, self.site.threads // 2)} if together else {}
        return self.site.model_copy(update=each)

    def evaluation_keys(self, policy: Pointer, data: Pointer, split: str) -> list[ArtifactKey]:
        """The keys of a policy's held-out episodes, shard by shard."""
        shards, key = self.evaluation_shards(data, split), StageKeys(self.settings).evaluation
        return [key(policy, data, split, shard, self.frozen) for shard in shards]

    def evaluation_shards(self, data: Pointer, split: str) -> range:
        """The numbers of the shards of an evaluation on a split."""
        evaluate, shard = self.settings.evaluate, self.settings.rollout.shard
        return range(shards_of_split(self.store.open(data), split, evaluate.episodes, shard))
