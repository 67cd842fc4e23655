"""Make the specs of episodes. Play a shard (a batch of episodes) into a folder of trajectories."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from operator import attrgetter
from pathlib import Path

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.chat_template import ChatTemplate
from agentfly_core.authoring.event_loop import run
from agentfly_core.config.episodes import Branching, Evaluate, Rollout
from agentfly_core.config.experiment import Gates
from agentfly_core.config.parts import PROGRAM
from agentfly_core.experiment.task import Task
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted, ScriptedPolicy
from agentfly_core.inference.templates.model import end_of, writer
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
OnEpisode = Callable[[Trajectory], None]
REPORTS = 100


def rollout_spec(
    whole: Task,
    mixture: Mapping[str, Task],
    tokenizer: PreTrainedTokenizerBase,
    frozen: Mapping[str, Frozen] = {},
    programs: int = sys.maxsize,
    memory: Path | None = None,
) -> RolloutSpec:
    """Collect the rules for the episodes of an experiment, such as template, tools and limits.

    `whole` contains the tools, rewards and settings of the whole experiment. If the experiment has
    several tasks, `mixture` maps their names to the tasks. For each agent role that is not trained,
    `frozen` has the policy or service that replies for the role. If agents are separate programs,
    at most `programs` of these programs run at the same time. `memory` is the folder of
    `Episode.memory`; None means an empty folder.
    """
    tasks = {
        name: rollout_spec(task, {}, tokenizer, frozen, programs, memory)
        for name, task in mixture.items()
    }
    agent, branching = whole.settings.agent, whole.settings.rollout.branching
    return RolloutSpec(
        template=whole.settings.template.make(tokenizer=tokenizer),
        tools=whole.tools,
        # all other rewards are computed later, in the score stage, from stored episodes
        rewards=tuple(reward for reward in whole.rewards if reward.needs),
        agent=whole.agent,
        system=agent.system,
        max_turns=agent.max_turns,
        max_tokens=agent.max_tokens,
        max_observation_tokens=agent.max_observation_tokens,
        max_model_len=agent.max_model_len,
        max_sampled_tokens=agent.max_sampled_tokens or sys.maxsize,
        deadline=agent.deadline,
        stop=agent.stop,
        end_tokens=end_tokens(tokenizer),
        limits=whole.limits,
        frozen=frozen,
        branching=fork_rule(branching, len(tokenizer)) if branching else None,
        tasks=tasks,
        at_once=programs if agent.use == PROGRAM else sys.maxsize,
        memory=memory,
    )


def fork_rule(branching: Branching, vocabulary: int) -> ForkRule:
    """Make the rule that decides whether an episode forks before a reply.

    A fork copies the episode up to this reply, and samples another reply. `vocabulary` is the
    model's vocabulary size.
    """
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
    """Make a sampler that returns the replies of the function `policy`.

    The chat template and the tokenizer encode the replies as tokens.
    """
    encode, end = reply_encoder(tokenizer), partial(end_of, template)
    return Scripted(encode, template.stop_tokens[0], policy, writer(template), end)


def require_room(
    tasks: Mapping[str, Task], tokenizer: PreTrainedTokenizerBase, problems: Iterable[Problem]
) -> None:
    """Raise PromptTooLong if the first prompt of a problem leaves no room for a reply.

    The length of first prompts is checked only for the agent `tool_loop`. The first prompt of any
    other agent depends on the agent's code. Raises ValueError if a problem selects a tool that the
    experiment lacks. Also raises ValueError if a problem has a system message although
    `agent.system` is set.
    """
    for name, some in by_task(problems, tasks).items():
        spec = rollout_spec(tasks[name], {}, tokenizer)
        for problem in some:
            spec.of(problem).opening(problem)
        if spec.agent is tool_loop:
            spec.require_room(some)


def require_tags(by: str, problems: Iterable[Problem]) -> None:
    """Raise ValueError if a problem lacks the key `by` in its `facts`.

    `by` is the value of the setting evaluate.by. If `by` is empty, no problem is checked.
    """
    for problem in problems if by else ():
        tag(problem, by, "evaluate.by")


def of_step(
    settings: Rollout, seeds: Seeds, problems: Sequence[Problem], step: int, greedy: bool
) -> list[EpisodeSpec]:
    """Make the episodes of a training step: `group_size` episodes for each problem.

    With `greedy`, each problem gets one more episode at temperature 0.

    With `rollout.branching`, the returned list contains only some episodes of each problem, for
    example 2 of 8. The other 6 episodes are in the field `spares` of these two episodes, 3 in each.
    If an episode forks while it is played, the fork replaces one of the episode's `spares`.
    """
    size, begin = settings.group_size, settings.beginnings
    baselines = episode_specs(problems if greedy else [], 1, step, "baseline", 0.0, seeds)
    sampled = episode_specs(problems, size, step, "train", settings.temperature, seeds)
    sampled = [replace(one, chains=size + greedy) for one in sampled]
    groups = [sampled[start : start + size] for start in range(0, len(sampled), size)]
    return [
        # each of the first episodes of a problem gets a share of the problem's other episodes
        *(replace(g[n], spares=tuple(g[n + begin :: begin])) for g in groups for n in range(begin)),
        *(replace(one, chain=size, chains=size + 1) for one in baselines),
    ]


def of_test(
    settings: Evaluate, seed: int, problems: Sequence[Problem], name: str
) -> list[EpisodeSpec]:
    """Make the episodes of an evaluation on a held-out split, such as validation or test.

    `name` is the name of the split. The seeds of the episodes are the same for all policies,
    because policies are compared episode by episode.
    """
    temperature = settings.temperature
    return episode_specs(problems, settings.episodes, name, "evaluation", temperature, (seed, name))


def of_split(
    temperature: float, seed: int, problems: Sequence[Problem], name: str, episodes: int
) -> list[EpisodeSpec]:
    """Make the episodes of a split: one for each problem, then a second for each, and so on.

    `episodes` is the total number. The seeds are the same as in a held-out evaluation.
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
    """Play a batch of episodes (a shard), and return the metrics of the environments.

    Trajectories and timings are written to `folder`. Rewards that read an environment are computed
    during the episode. Raises GateClosed if too many episodes failed, or if such a reward is
    missing in too many episodes. Raises ServiceLost if the sampler dies.
    """
    played, measured = collect_into(episode_specs, spec, sampler, folder, watch, resources)
    stop_if_failing(played, gates.failed)
    stop_if_unobserved(played, gates.unscored)
    return measured


def watching(stage: str, step: int, done: int, total: int) -> OnEpisode:
    """Return a function that reports the progress of a stage. Call it with each finished episode.

    The constant REPORTS is the approximate number of reports of a stage. `done` is the number of
    episodes that were already finished before the first call. `total` does not include the
    additional episodes that agents create with `Episode.fork`.
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
