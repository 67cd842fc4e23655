"""An experiment that is ready to run: its settings, imported code, site and store."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from typing import Any, Self

from agentfly_core.authoring import injection
from agentfly_core.authoring.scoring import score_here
from agentfly_core.config.experiment import Settings
from agentfly_core.config.import_path import at
from agentfly_core.config.parts import SELF
from agentfly_core.config.reference import NAME, LastPolicy, RunPolicy, model_reference, run_step
from agentfly_core.config.site import Site
from agentfly_core.config.tasks import SINGLE
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.memory import memory_of
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.experiment.run_policies import Parent, digest_of_speaker, of_run
from agentfly_core.experiment.task import Task, import_tasks, together
from agentfly_core.experiment.user_code import code_of
from agentfly_core.models import adapter_artifact
from agentfly_core.records.dataset import shards_of_split
from agentfly_core.records.problem_schedule import ProblemSchedule
from agentfly_core.records.trajectory import Scored, Trajectory, Unscored
from agentfly_core.rl.interface import Algorithm
from agentfly_core.store.artifact import Artifact, ArtifactKey, Pointer
from agentfly_core.store.store import Store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Experiment:
    """An experiment, the site (machine) that runs it, and the store of its results.

    `Experiment.of("quickstart", settings, {"seed": "default", ...}, Site(), Store.at(".", cache))`

    - `origin`: for each setting, where its value comes from
    - `tasks`: the tasks by name. Without a mixture, the only key is `single`.
    - `whole`: one task that combines all tasks
    - `pinned`: the digests of untrained speakers (see `frozen`), as recorded at the run's start.
      None before the run's start.
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
        tasks: Mapping[str, Task] | None = None,
    ) -> Self:
        """Make an experiment from its settings.

        Tools, rewards and environments are imported, unless `tasks` is given. Raises ValueError if
        a setting is wrong. The message contains the key of the setting.
        """
        tasks = import_tasks(settings) if tasks is None else tasks
        whole, algorithm = together(settings, tasks), settings.algorithm.make()
        return cls(name, settings, origin, algorithm, whole, tasks, site, store, pinned)

    def on(self, settings: Settings) -> Self:
        """Return the experiment with `settings`.

        The algorithm and the imported tools, rewards and agents are kept, so their settings must
        be unchanged. Other settings, such as data, model, gates and steps, may differ.
        """
        each = settings.each
        tasks = {name: replace(task, settings=each[name]) for name, task in self.tasks.items()}
        whole = replace(self.whole, settings=settings)
        return replace(self, settings=settings, whole=whole, tasks=tasks)

    def changed(self, **sections: Any) -> Self:
        """Return the experiment with some sections of its settings replaced:
        `experiment.changed(steps=1, warm_start=None)`.

        The new experiment imports its tools, rewards and environments again.
        """
        settings = self.settings.model_copy(update=sections)
        made = type(self).of(self.name, settings, self.origin, self.site, self.store)
        return made.on(settings.with_code(code_of(settings, made.tasks)))

    def with_agent(self, **settings: Any) -> Self:
        """Return the experiment with another agent:
        `experiment.with_agent(use="program", command=["python", "my_agent.py"])`.

        Fields of `AgentPart`, such as `max_turns`, keep their old values if `settings` does not set
        them. The exception is `use`: if `settings` does not set it, the new agent is the default
        agent. Arguments for the old agent's class are removed.
        """
        part = self.settings.agent
        limits = part.model_dump(include={*type(part).model_fields} - {"use"})
        return self.changed(agent=type(part).model_validate({**limits, **settings}))

    def run_name(self, name: str, new: bool) -> str:
        """Return the name of a run: `name`, or a default such as `quickstart-24d40af7` if `name` is
        empty.

        The default contains a digest of the settings. If `new` is True and the name is taken, a
        number is added: `quickstart-24d40af7-2`. Raises ValueError if `name` cannot be a folder
        name.
        """
        if name and not re.fullmatch(NAME, name):
            raise ValueError(
                f"Got the run name {name!r}, expected letters, digits, '.', '_' and '-', such as "
                "my-run.2."
            )
        base = name or f"{self.name}-{self.settings.digest[:8]}"
        if new:
            names = chain([base], (f"{base}-{number}" for number in count(2)))
            # compared by name, because a run with a damaged run.json also occupies its name
            return next(n for n in names if "run.json" not in self.store.names(RunLayout(n).uri))
        return base

    @property
    def mixture(self) -> Mapping[str, Task]:
        """The tasks of a mixture (several tasks in one experiment). Empty if there is one task."""
        return {} if SINGLE in self.tasks else self.tasks

    @property
    def greedy(self) -> bool:
        """Whether each problem of a step is also played greedily once, as a baseline."""
        return self.algorithm.needs.greedy_episode

    @property
    def schedule(self) -> ProblemSchedule:
        """The order in which steps play the training problems."""
        settings = self.settings
        problems = settings.quotas(settings.rollout.problems)
        return ProblemSchedule(settings.seed, settings.rollout, problems, settings.night)

    @property
    def dataset(self) -> Artifact:
        """The stored dataset. Raises FileNotFoundError if the dataset is not prepared."""
        return self.store.artifact(StageKeys(self.settings).prepare().uri)

    @property
    def parent(self) -> Parent | None:
        """The policy of another run from which this experiment starts, or None.

        The setting `fork` names this policy. Without `fork`, the setting `model` may name a
        policy as `run:NAME` or `run:NAME@STEP`.
        """
        if fork := self.settings.fork:
            return of_run(self.store, RunPolicy(fork.run, fork.step), "fork")
        with at("model"):
            model = model_reference(self.settings.model)
        if not isinstance(model, RunPolicy | LastPolicy):
            return None
        return of_run(self.store, model, "model")

    @property
    def start_policy(self) -> Pointer | None:
        """The policy that training starts from, or None if this policy does not exist yet."""
        if parent := self.parent:
            return parent.policy
        stage_keys = StageKeys(self.settings)
        target = stage_keys.base_model(self.store.get(stage_keys.prepare().uri))
        return self.store.get(target.uri) if target else None

    @property
    def reference(self) -> Pointer | None:
        """The reference policy of the KL penalty, if `algorithm.kl.reference` is run:NAME@STEP.

        None if the experiment has no KL penalty. Also None if the setting is `start`: the reference
        policy is then the policy from which training starts.
        """
        policy = run_step(self.algorithm.needs.reference or "")
        return of_run(self.store, policy, "algorithm.kl.reference").policy if policy else None

    @property
    def frozen(self) -> Mapping[str, str]:
        """The digest of the policy or chat service (external model API) of each untrained role.

        The digests are fixed when a run begins. A role is also untrained if the run's own policy
        plays the role, but is not trained on the replies. Such a role has the text SELF instead of
        a digest. Raises ValueError if a policy or chat service is missing.
        """
        if self.pinned is not None:
            return self.pinned
        speakers = self.settings.agent.speakers
        digests = {
            role: digest_of_speaker(self.store, self.site, role, who)
            for role, who in speakers.items()
        }
        return digests | dict.fromkeys(self.settings.agent.untrained, SELF)

    def memory_of(self, policy: Pointer) -> Pointer | None:
        """Return the memory (a folder of files) of a policy.

        Returns None for a policy without memory, or if `agent.remembers` is not set.
        """
        return memory_of(self.store, policy) if self.settings.agent.remembers else None

    def scores(
        self, trajectories: Sequence[Trajectory], among: Sequence[Trajectory]
    ) -> list[Scored]:
        """Score each trajectory with the rewards of its task.

        `among` has all trajectories of the step, for rewards that compare episodes. In an
        experiment with several tasks, each task has its own reward that decides success. This
        reward is also stored under the key GOAL, which all tasks share. In an experiment without
        rewards, the field `reward` of each `Scored` is an `Unscored` (a missing reward).
        """
        if not self.whole.rewards:
            return [
                Scored(t.id, {}, (), Unscored("the experiment has no rewards"))
                for t in trajectories
            ]
        fresh = []
        for name, task in self.tasks.items():
            own = [t for t in trajectories if t.problem.task == name]
            everyone = [t for t in among if t.problem.task == name]
            scores = score_here(own, task.rewards, injection.name(task.agent), everyone)
            for one in scores:
                rewards = dict(one.rewards)
                if task.goal in rewards:
                    rewards[self.whole.goal] = rewards[task.goal]
                fresh.append(replace(one, rewards=rewards))
        return fresh

    def sizes(self, policy: Pointer) -> tuple[int, int]:
        """Return the size of the stored policy and the size of its learner state, in bytes.

        A policy has one number of the model's dtype for each weight. A learner state has three
        float32 numbers for each weight: the master copy and the two moments of AdamW. With a critic
        model, it has six numbers for each weight. If an adapter is trained, but `policy` is still
        the base model, both sizes are 0, because the adapter does not exist yet.
        """
        files, base = adapter_artifact.folders(self.store, policy)
        if self.settings.adapter and base is None:
            return 0, 0
        models = 2 if self.algorithm.needs.critic == "model" else 1
        width = 2 if self.settings.dtype == "bfloat16" else 4
        size = sum(path.stat().st_size for path in files.iterdir())
        return size, models * size * 12 // width

    def require_speakers_unchanged(self) -> None:
        """Raise ValueError if the policy that plays an untrained role changed since the run began.

        If the role is played by a chat service (external model API), a change is only logged as a
        warning, because the service's address may differ between machines.
        """
        for role, who in self.settings.agent.speakers.items():
            if digest_of_speaker(self.store, self.site, role, who) == self.frozen[role]:
                continue
            if isinstance(who, RunPolicy):
                raise ValueError(
                    f"agent.frozen.{role}: the policy {who} has changed since the run began. "
                    "Restore it from a copy, or start another run with --new."
                )
            logger.warning(
                "agent.frozen.%s: url, model or extra of %s changed since the run began. Later "
                "episodes use the new values.",
                role,
                who,
            )

    @property
    def divided_site(self) -> Site:
        """The site settings for the learner and the sampler.

        If both run on CPUs at the same time, each of them gets half of the threads. On two cores, a
        step of SmolLM2-135M takes 9.9 to 10.6 s with divided threads. It takes 12.2 to 13.4 s if
        both use all threads.
        """
        together = self.settings.rollout.max_staleness > 0 and self.site.device == "cpu"
        each = {"threads": max(1, self.site.threads // 2)} if together else {}
        return self.site.model_copy(update=each)

    def evaluation_keys(self, policy: Pointer, data: Pointer, split: str) -> list[ArtifactKey]:
        """Return the keys of the held-out episodes of a policy.

        There is one key for each shard (batch of episodes).
        """
        shards, key = self.evaluation_shards(data, split), StageKeys(self.settings).evaluation
        memory = self.memory_of(policy)
        return [key(policy, data, split, shard, self.frozen, memory) for shard in shards]

    def evaluation_shards(self, data: Pointer, split: str) -> range:
        """Return the indices of the shards (batches of episodes) of an evaluation on a split."""
        evaluate, shard = self.settings.evaluate, self.settings.rollout.shard
        return range(shards_of_split(self.store.open(data), split, evaluate.episodes, shard))
