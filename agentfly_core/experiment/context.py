"""The context of an experiment: its parts, imported once, the site, the store, and the policies of
other runs that it names.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.tool import Tool
from agentfly_core.config.experiment import Science
from agentfly_core.config.import_path import at, construct, load
from agentfly_core.config.parts import AgentPart, RewardPart
from agentfly_core.config.reference import (
    LastPolicy,
    RunPolicy,
    SpeakerReference,
    model_reference,
    run_step,
)
from agentfly_core.config.site import Site
from agentfly_core.config.tasks import GOAL
from agentfly_core.experiment import keys
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.parts import limits_of, refuse_misfits, reward_of, tool_of
from agentfly_core.experiment.run_layout import RunLayout, done_by
from agentfly_core.records.dataset import shards_of_split
from agentfly_core.records.trajectory import Problem, task_of
from agentfly_core.rollout.episode import Agent
from agentfly_core.rollout.pool import Limit
from agentfly_core.store.store import Artifact, ArtifactKey, Pointer, Store
from agentfly_core.system.formats.text import nearest

if TYPE_CHECKING:
    from agentfly_core.rl.interface import Algorithm


@dataclass(frozen=True)
class Parent:
    """The policy of another run that this run starts from:
    `Parent("nightly-2026-11-20", Pointer(...))`.
    """

    run: str
    policy: Pointer


@dataclass(frozen=True)
class Resolved:
    """An experiment with what its import paths name:
    `Resolved(science, GRPO(), (calculator,), {exact: 1.0}, ...)`.

    `rewards` have their weights, `goal` is the name of the reward that says solved, `limits` are
    those of each kind of environment. In a mixture `tasks` are the same of each task, and `tools`,
    `rewards` and `limits` those of all together.
    """

    science: Science
    algorithm: Algorithm
    agent: Agent
    tools: tuple[Tool, ...]
    rewards: Mapping[Reward, float]
    goal: str
    limits: Mapping[type[Environment], Limit]
    tasks: Mapping[str, Resolved] = field(default_factory=dict)

    @property
    def each(self) -> Mapping[str, Resolved]:
        """Its tasks by name; where it has none itself, without a name."""
        return self.tasks or {"": self}

    def of(self, problem: Problem) -> Resolved:
        """The task that a problem belongs to."""
        return self.tasks[task_of(problem.id)] if self.tasks else self

    @property
    def parts(self) -> tuple[Tool | Reward, ...]:
        """Its tools, and then its rewards."""
        return (*self.tools, *self.rewards)

    @property
    def greedy(self) -> bool:
        """Whether each problem of a step is played once more, greedily, as a baseline."""
        return self.algorithm.needs.greedy_episode


@dataclass(frozen=True)
class ExperimentContext:
    """An experiment and the place where it is worked on; what stages make here is shared by all
    runs of the store. `pinned` are the `frozen` that a run began with.

    `ExperimentContext("quickstart", resolve(science), {"seed": "default", ...}, Site(),
    Store.at(".", cache))`
    """

    experiment: str
    resolved: Resolved
    origin: Mapping[str, str]
    site: Site
    store: Store
    pinned: Mapping[str, str] | None = None

    @property
    def science(self) -> Science:
        """What the experiment is."""
        return self.resolved.science

    def on(self, science: Science) -> ExperimentContext:
        """The same place and parts, with the data or the model of another science."""
        return replace(self, resolved=replace(self.resolved, science=science))

    @property
    def parent(self) -> Parent | None:
        """The policy that a fork continues from, or that a model reference `run:NAME` or
        `run:NAME@STEP` names, or None.
        """
        if fork := self.science.fork:
            return of_run(self.store, RunPolicy(fork.run, fork.step), "fork")
        with at("model"):
            model = model_reference(self.science.model)
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
        where = self.resolved.algorithm.needs.reference
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
        speakers = self.science.agent.speakers
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
        together = self.science.rollout.max_staleness > 0 and self.site.device == "cpu"
        each = {"threads": max(1, self.site.threads // 2)} if together else {}
        return self.site.model_copy(update=each)

    def evaluation_keys(self, policy: Pointer, data: Pointer, split: str) -> list[ArtifactKey]:
        """The keys of a policy's held-out episodes, shard by shard."""
        shards, key = self.evaluation_shards(data, split), StageKeys(self.science).evaluation
        return [key(policy, data, split, shard, self.frozen) for shard in shards]

    def evaluation_shards(self, data: Pointer, split: str) -> range:
        """The numbers of the shards of an evaluation on a split."""
        evaluate, shard = self.science.evaluate, self.science.rollout.shard
        return range(shards_of_split(self.store.open(data), split, evaluate.episodes, shard))


def resolve(science: Science) -> Resolved:
    """Import what an experiment names; raises ValueError, with the key where it stands, for what
    does not fit.
    """
    if science.tasks:
        return _mixture(science)
    agent = agent_of(science.agent)
    tools = tuple(map(tool_of, science.tools))
    rewards = {key: reward_of(key, part) for key, part in science.rewards.items()}
    limits = limits_of(science.environments)
    for own in science.own_settings():
        own.completed()
    refuse_misfits(tools, list(rewards.values()), limits)
    weights = {rewards[key]: part.weight for key, part in science.rewards.items()}
    goal = rewards[science.goal].name
    return Resolved(science, science.algorithm.make(), agent, tools, weights, goal, limits)


def _mixture(science: Science) -> Resolved:
    tasks = {}
    for name, one in science.each.items():
        with at(f"tasks.{name}"):
            tasks[name] = resolve(one)
    limits: dict[type[Environment], tuple[str, Limit]] = {}
    for name, task in tasks.items():
        for kind, limit in task.limits.items():
            first, same = limits.setdefault(kind, (name, limit))
            if limit != same:
                raise ValueError(
                    f"tasks.{name}.environments: {kind.__name__} has another limit or other "
                    f"settings in the task {first}, and both are lent the same ones: give "
                    "them once, beside `tasks`."
                )
    for own in science.own_settings():
        own.completed()
    return Resolved(
        science=science,
        algorithm=science.algorithm.make(),
        agent=agent_of(science.agent),
        tools=tuple(tool for task in tasks.values() for tool in task.tools),
        rewards=_shared_rewards(tasks),
        goal=science.goal,
        limits={kind: limit for kind, (_, limit) in limits.items()},
        tasks=tasks,
    )


def _shared_rewards(tasks: Mapping[str, Resolved]) -> dict[Reward, float]:
    """The rewards of all tasks by name; raises ValueError for one that is not the same in two."""
    by_name: dict[str, tuple[str, RewardPart, Reward]] = {}
    for name, task in tasks.items():
        for reward, part in zip(task.rewards, task.science.rewards.values(), strict=True):
            first, same, _ = by_name.setdefault(reward.name, (name, part, reward))
            if part != same:
                raise ValueError(
                    f"tasks.{name}.rewards: {reward.name} has another weight or other settings in "
                    f"the task {first}, and a name means the same in all tasks: give it another, "
                    "`{my_name: {use: its import path, weight: ...}}`."
                )
    if GOAL in by_name:
        raise ValueError(
            f"tasks.{by_name[GOAL][0]}.rewards: {GOAL} is what solved is called in the scores of a "
            "mixture; give the reward another name."
        )
    return {reward: part.weight for _, part, reward in by_name.values()}


def agent_of(part: AgentPart) -> Agent:
    """The agent, of a class one object that plays all episodes; raises ValueError for what is
    none.
    """
    with at("agent.use"):
        named = load(part.use)
        if not any(map(inspect.iscoroutinefunction, (named, named.__call__))):
            raise ValueError(
                f"{part.use} is no agent, expected an `async def` of one Episode that returns its "
                "Ending, or a class with such a __call__."
            )
        agent: Agent = named
        if isinstance(named, type):
            agent = construct(named, part.model_extra or {})
    return agent


def digest_of_speaker(store: Store, site: Site, role: str, who: SpeakerReference) -> str:
    """The digest of the policy or the chat service that is to speak for a role; raises ValueError
    for one that is not there.
    """
    key = f"agent.frozen.{role}"
    if isinstance(who, RunPolicy):
        return of_run(store, who, key).policy.digest
    with at(key):
        return keys.chat_service(site.endpoint(who.name))


def of_run(store: Store, where: RunPolicy | LastPolicy, key: str) -> Parent:
    """The policy of a run, and the run's name; `key` is the setting that names it.

    Step 0 is the policy that step 1 starts from. Raises ValueError for one that is not there.
    """
    with at(key):
        policy = (
            policy_of(store, where.run, where.step)
            if isinstance(where, RunPolicy)
            else final_policy(store, where.run)
        )
        stored = store.get(policy.uri)
        if stored and stored.manifest.get("stripped"):
            raise ValueError(
                f"{where} was kept without its weights. Name a step that was evaluated, or the "
                "run's last, or keep all with update.keep_policies=0."
            )
    return Parent(where.run, policy)


def final_policy(store: Store, name: str) -> Artifact:
    """The last policy of a run; raises ValueError when it has none."""
    layout = RunLayout(name)
    for step in reversed(layout.steps(store)):
        if policy := store.get(layout.step(step).policy):
            return policy
    runs = ", ".join(store.names("runs")) or "none"
    hint = nearest(name, store.names("runs"))
    raise ValueError(
        f"The run {name!r} has published no policy in {store.uri}.{hint} Runs there: {runs}."
    )


def policy_of(store: Store, name: str, step: int) -> Pointer:
    """The policy of a run's step, 0 for the one that step 1 starts from; raises ValueError when
    there is none. Steps that a fork continues from are its own, too.
    """
    layout = RunLayout(done_by(store, name, step))
    if step == 0 and (start := store.read_json(layout.start)):
        return Pointer.of(start, layout.start)
    if policy := store.get(layout.step(step).policy):
        return policy
    last = final_policy(store, name)
    raise ValueError(
        f"The run {name!r} has no policy of step {step} in {store.uri}; its last one is {last.uri}."
    )


def require_same_tokens(store: Store, what: str, theirs: Pointer, ours: Pointer) -> None:
    """Raise ValueError when two policies read and write tokens of different tokenizers."""
    one, other = (store.part(policy, "tokenizer.json") for policy in (theirs, ours))
    if one is None or one != other:
        raise ValueError(
            f"{what} has tokens of {theirs.uri}, and training those of {ours.uri}: the tokenizers "
            "differ, or one is missing. Name a run of this model, or one that comes from it."
        )
