"""Make the specs of episodes, and play a shard of episodes into a folder of trajectories."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from operator import attrgetter
from pathlib import Path

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.authoring.event_loop import run
from agentfly_core.config.episodes import Branching, Evaluate, Rollout
from agentfly_core.config.experiment import Gates
from agentfly_core.config.parts import PROGRAM
from agentfly_core.experiment.task import Task, template_of
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted, ScriptedPolicy
from agentfly_core.inference.templates.model import writer
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.models.known import end_tokens
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline.stop_conditions import stop_if_failing, stop_if_unobserved
from agentfly_core.records.parquet import EPISODES, write_trajectories
from agentfly_core.records.problem_schedule import by_task
from agentfly_core.records.timing import write_timings
from agentfly_core.records.trajectory import Problem, Role, Trajectory, tag
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.history.branching import ForkRule
from agentfly_core.rollout.resources import ResourceManager
from agentfly_core.rollout.rules import EpisodeSpec, Frozen
from agentfly_core.rollout.shard import collect
from agentfly_core.system.formats import hashing
from agentfly_core.system.progress import Progress, report

Seeds = tuple[int | str, ...]
REPORTS = 100


def rollout_spec(
    whole: Task,
    mixture: Mapping[str, Task],
    tokenizer: PreTrainedTokenizerBase,
    frozen: Mapping[str, Frozen] = {},
    programs: int = sys.maxsize,
    memory: Path | None = None,
) -> RolloutSpec:
    """Collect the rules for episodes of a model with this tokenizer: template, tools, limits, ...

    The policy plays all roles that are not in `frozen`. At most `programs` agent programs run at
    once. If `memory` is None, the memory is empty.
    """

    def of(task: Task) -> RolloutSpec:
        runs_program = task.settings.agent.use == PROGRAM
        spec = replace(_task_spec(task, tokenizer, frozen), memory=memory)
        return replace(spec, at_once=programs) if runs_program else spec

    return replace(of(whole), tasks={name: of(task) for name, task in mixture.items()})


def _task_spec(
    task: Task, tokenizer: PreTrainedTokenizerBase, frozen: Mapping[str, Frozen]
) -> RolloutSpec:
    agent, branching = task.settings.agent, task.settings.rollout.branching
    return RolloutSpec(
        template=template_of(task.settings.template, tokenizer),
        tools=task.tools,
        # other rewards are computed later from the record, in the score stage
        rewards=tuple(reward for reward in task.rewards if reward.needs),
        agent=task.agent,
        system=agent.system,
        max_turns=agent.max_turns,
        max_tokens=agent.max_tokens,
        max_observation_tokens=agent.max_observation_tokens,
        max_model_len=agent.max_model_len,
        max_sampled_tokens=agent.max_sampled_tokens or sys.maxsize,
        deadline=agent.deadline,
        stop=agent.stop,
        end_tokens=end_tokens(tokenizer),
        limits=task.limits,
        frozen=frozen,
        branching=fork_rule(branching, len(tokenizer)) if branching else None,
    )


def fork_rule(branching: Branching, vocabulary: int) -> ForkRule:
    """Make the rule that decides where episodes fork, for a model with `vocabulary` tokens."""
    return ForkRule(
        k=branching.k,
        alpha=branching.alpha,
        beta=branching.beta if branching.reads_entropies else 0.0,
        tau=branching.tau,
        draws=branching.mode != "threshold",
        vocabulary=vocabulary,
    )


def scripted(
    policy: ScriptedPolicy, tokenizer: PreTrainedTokenizerBase, template: ChatTemplate
) -> Scripted:
    """Make a sampler from a function that replies. The template encodes the replies as tokens."""
    return Scripted(reply_encoder(tokenizer), template.stop_tokens[0], policy, writer(template))


def require_room(
    tasks: Mapping[str, Task], tokenizer: PreTrainedTokenizerBase, problems: Iterable[Problem]
) -> None:
    """Raise PromptTooLong before playing if a problem's prompt leaves no room for a reply.

    The room is checked only for `tool_loop`, because the first prompt of another agent depends on
    its code. Raises ValueError if a problem's tools or system message do not fit the experiment.
    """
    for name, some in by_task(problems, tasks).items():
        spec = _task_spec(tasks[name], tokenizer, {})
        for problem in some:
            spec.of(problem).opening(problem)
        if spec.agent is tool_loop:
            spec.require_room(some)


def require_tags(by: str, problems: Iterable[Problem]) -> None:
    """Raise ValueError for a problem without the fact that `by` (evaluate.by) names."""
    for problem in problems if by else ():
        tag(problem, by, "evaluate.by")


def of_step(
    settings: Rollout, seeds: Seeds, problems: Sequence[Problem], step: int, greedy: bool
) -> list[EpisodeSpec]:
    """Make the episodes of a training step: `group_size` per problem, and with `greedy` one more
    per problem at temperature 0.

    With `branching`, only the first episodes of a problem are started. The others are their spares,
    which are used for forks.
    """
    size, begin = settings.group_size, settings.beginnings
    baselines = episode_specs(problems if greedy else [], 1, step, "baseline", 0.0, seeds)
    sampled = episode_specs(problems, size, step, "train", settings.temperature, seeds)
    sampled = [replace(one, chains=size + greedy) for one in sampled]
    groups = [sampled[start : start + size] for start in range(0, len(sampled), size)]
    return [
        # the first episodes of a problem divide its other ones among themselves
        *(replace(g[n], spares=tuple(g[n + begin :: begin])) for g in groups for n in range(begin)),
        *(replace(one, chain=size, chains=size + 1) for one in baselines),
    ]


def of_test(
    settings: Evaluate, seed: int, problems: Sequence[Problem], name: str
) -> list[EpisodeSpec]:
    """Make the episodes of a held-out evaluation.

    Seeds are the same for every policy, so that policies can be compared episode by episode.
    """
    temperature = settings.temperature
    return episode_specs(problems, settings.episodes, name, "evaluation", temperature, (seed, name))


def of_split(
    temperature: float, seed: int, problems: Sequence[Problem], name: str, episodes: int
) -> list[EpisodeSpec]:
    """Make `episodes` episodes of a split in total: one per problem, then a second per problem, ...

    They have the seeds of a held-out evaluation.
    """
    chains = -(-episodes // len(problems))
    specs = episode_specs(problems, chains, name, "evaluation", temperature, (seed, name))
    return sorted(specs, key=attrgetter("chain"))[:episodes]


def play_shard(
    spec: RolloutSpec,
    gates: Gates,
    sampler: Sampler,
    episode_specs: Sequence[EpisodeSpec],
    folder: Path,
    watch: OnEpisode,
    resources: ResourceManager,
) -> dict[str, float]:
    """Play a shard, write trajectories and timings to `folder`, and return the environments'
    metrics.

    Raises SamplerLost if the sampler dies. Raises GateClosed if too many episodes failed or lack a
    reward that reads an environment.
    """
    played, measured = collect_into(episode_specs, spec, sampler, folder, watch, resources)
    stop_if_failing(played, gates.failed)
    stop_if_unobserved(played, gates.unscored)
    return measured


OnEpisode = Callable[[Trajectory], None]


def watching(stage: str, step: int, done: int, total: int) -> OnEpisode:
    """Return a function that reports finished episodes as progress, up to REPORTS times per stage.

    `done` is the number of episodes played before. `total` excludes forks that agents make.
    """
    played, every = count(done + 1), max(1, total // REPORTS)

    def watch(_: Trajectory) -> None:
        if (number := next(played)) % every == 0 or number == total:
            report(Progress(stage, step, number, max(number, total)))

    return watch


def collect_into(
    episode_specs: Sequence[EpisodeSpec],
    spec: RolloutSpec,
    sampler: Sampler,
    folder: Path,
    watch: OnEpisode,
    resources: ResourceManager,
) -> tuple[list[Trajectory], dict[str, float]]:
    played, timings, measured = run(collect(episode_specs, spec, sampler, watch, resources))
    write_trajectories(folder / EPISODES, played)
    write_timings(folder, timings)
    return played, measured


def episode_specs(
    problems: Sequence[Problem],
    chains: int,
    place: int | str,
    role: Role,
    temperature: float,
    seeds: Seeds,
) -> list[EpisodeSpec]:
    return [
        EpisodeSpec(p, chain, place, role, temperature, hashing.seed(*seeds, p.id, chain), chains)
        for p in sorted(problems, key=attrgetter("id"))
        for chain in range(chains)
    ]
