"""The stages that play and score: from problems to a folder of episodes, from episodes to a folder
of scores.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import count
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.agents.tool_loop import tool_loop
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.config.evaluation import Evaluate
from agentfly_core.config.experiment import Gates, Rollout, WarmStart
from agentfly_core.config.tasks import SINGLE
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.parts import template_of
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.experiment.task import Task
from agentfly_core.inference.sampler import Sampler
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.text_encoder import reply_encoder
from agentfly_core.models.known import end_tokens
from agentfly_core.pipeline.stop_conditions import (
    GateClosed,
    stop_if_all_frozen,
    stop_if_failing,
    stop_if_unobserved,
)
from agentfly_core.records.messages import reply_text
from agentfly_core.records.parquet import EPISODES, write_trajectories
from agentfly_core.records.problem_schedule import by_task
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.timing import write_timings
from agentfly_core.records.trajectory import (
    Message,
    Observation,
    Problem,
    Role,
    ToolCall,
    Trajectory,
    tag,
)
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.event_loop import EnvironmentLoop
from agentfly_core.rollout.rules import EpisodeSpec, Frozen
from agentfly_core.rollout.shard import NO_ANSWER, collect
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.text import warn_once
from agentfly_core.system.progress import Progress, report

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)
Seeds = tuple[int | str, ...]
MOST_TAGS = 50
REHEARSED = 8
"""The number of demonstrations that are scored before the warm start."""
HEARD = 512
"""The number of episodes from which the model `nano` has its tokens."""
BYTES_A_TOKEN = 4
Spans = list[tuple[int, ...]]
"""What was read, said, read, ... in a conversation, in tokens."""


def rollout_spec(
    experiment: Experiment, tokenizer: PreTrainedTokenizerBase, frozen: Mapping[str, Frozen] = {}
) -> RolloutSpec:
    """How an experiment's episodes are played with a model of this tokenizer; for roles that are
    not in `frozen`, the policy speaks.
    """
    spec = _task_spec(experiment.whole, tokenizer, frozen)
    mixed = {name: task for name, task in experiment.tasks.items() if name != SINGLE}
    tasks = {name: _task_spec(task, tokenizer, frozen) for name, task in mixed.items()}
    return replace(spec, tasks=tasks)


def _task_spec(
    task: Task, tokenizer: PreTrainedTokenizerBase, frozen: Mapping[str, Frozen]
) -> RolloutSpec:
    agent = task.settings.agent
    return RolloutSpec(
        template=template_of(task.settings.template, tokenizer),
        tools=task.tools,
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
    )


def require_room(
    experiment: Experiment, tokenizer: PreTrainedTokenizerBase, problems: Iterable[Problem]
) -> None:
    """Raise PromptTooLong where the prompt of a problem leaves no room for a reply, before anything
    is played.

    Only for `tool_loop`: what another agent has the model read first is known when it is played.
    """
    for name, some in by_task(problems, experiment.tasks).items():
        spec = _task_spec(experiment.tasks[name], tokenizer, {})
        if spec.agent is tool_loop:
            spec.require_room(some)


def require_tags(by: str, problems: Iterable[Problem]) -> None:
    """Raise ValueError where the fact that `evaluate.by` names is missing, or tells too many apart
    to be looked at.
    """
    if not by:
        return
    tags = {tag(problem, by, "evaluate.by") for problem in problems}
    if len(tags) > MOST_TAGS:
        raise ValueError(
            f"evaluate.by is {by}, which has {len(tags)} values on the held-out "
            f"problems, expected {MOST_TAGS} at most: name a fact such as a kind or a difficulty."
        )


def of_step(
    settings: Rollout,
    seeds: Seeds,
    problems: Sequence[Problem],
    step: int,
    greedy: bool,
) -> list[EpisodeSpec]:
    """The episodes of a training step: `group_size` chains of each problem, and with `greedy` one
    as its baseline.
    """
    sampled = _episode_specs(
        problems, settings.group_size, step, "train", settings.temperature, seeds
    )
    if not greedy:
        return sampled
    baselines = _episode_specs(problems, 1, step, "baseline", 0.0, seeds)
    return sampled + [replace(baseline, chain=settings.group_size) for baseline in baselines]


def of_test(
    settings: Evaluate, seed: int, problems: Sequence[Problem], name: str
) -> list[EpisodeSpec]:
    """The episodes of a held-out evaluation; the same seeds for every policy, so that two can be
    compared in pairs.
    """
    temperature = settings.temperature
    return _episode_specs(
        problems, settings.episodes, name, "evaluation", temperature, (seed, name)
    )


def of_split(
    temperature: float, seed: int, problems: Sequence[Problem], name: str, episodes: int
) -> list[EpisodeSpec]:
    """So many episodes of these problems of a split, as a held-out evaluation plays them: one of
    each problem, then a second one of each, ...
    """
    chains = -(-episodes // len(problems))
    specs = _episode_specs(problems, chains, name, "evaluation", temperature, (seed, name))
    return sorted(specs, key=attrgetter("chain"))[:episodes]


def demonstrate(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    folder: Path,
    environment_loop: EnvironmentLoop,
    frozen: Mapping[str, Frozen] = {},
) -> None:
    """Have the experiment's scripted policy play training problems, beside frozen speakers, again
    and again until there are `warm_start.episodes`.

    Raises GateClosed when more episodes failed than the experiment allows.
    """
    settings, warm_start = experiment.settings, experiment.settings.warm_start
    assert warm_start is not None
    specs = _demonstrations(problems, settings.quotas(warm_start.episodes), settings.seed)
    spec = rollout_spec(experiment, tokenizer, frozen)
    sampler = _showing(warm_start, tokenizer, spec, problems, settings.seed)
    watch = watching("demonstrate", 0, 0, warm_start.episodes)
    played, _ = _collect(specs, spec, sampler, folder, watch, environment_loop)
    stop_if_failing(played, settings.gates.failed)


def rehearsed(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    environment_loop: EnvironmentLoop,
    frozen: Mapping[str, Frozen] = {},
) -> list[Trajectory]:
    """Play REHEARSED demonstrations with the rewards that need an environment.

    Raises GateClosed when more episodes fail than the experiment allows, and for an agent that
    returns without an answer after a reply without a tool call.
    """
    settings, warm_start = experiment.settings, experiment.settings.warm_start
    assert warm_start is not None
    spec = rollout_spec(experiment, tokenizer, frozen)
    demonstrations = _demonstrations(problems, settings.quotas(REHEARSED), settings.seed)
    specs = [replace(one, role="train") for one in demonstrations]
    shows = _showing(warm_start, tokenizer, spec, problems, settings.seed)
    unsure = Scripted(reply_encoder(tokenizer), spec.template.stop_tokens[0], _unsure)
    played, unanswered = (
        environment_loop.run(
            collect(some, spec, sampler, lambda _: None, environment_loop.resources)
        )[0]
        for some, sampler in ((specs, shows), (specs[:1], unsure))
    )
    stop_if_failing(played, settings.gates.failed)
    if errors := [one.error for one in unanswered if one.error and NO_ANSWER in one.error]:
        raise GateClosed(f"The warm start has not begun: {errors[0]}.")
    return played


async def _unsure(conversation: Conversation) -> str:
    return "I do not know."


def shown(
    experiment: Experiment,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    environment_loop: EnvironmentLoop,
) -> list[Spans]:
    """What is read and said in HEARD demonstrations of these problems, in bytes, as a tokenizer of
    bytes has them; replies and episodes may be of any length, `seed` does not count, and the script
    speaks for frozen speakers as well, who have no tokens yet.

    Raises GateClosed when more episodes failed than the experiment allows.
    """
    settings, warm_start = experiment.settings, experiment.settings.warm_start
    assert warm_start is not None
    spec = boundless(rollout_spec(experiment, tokenizer))
    specs = _demonstrations(problems, settings.quotas(HEARD), 0)
    watch = watching("model", 0, 0, HEARD)
    sampler = _showing(warm_start, tokenizer, spec, problems, 0)
    played, _, _ = environment_loop.run(
        collect(specs, spec, sampler, watch, environment_loop.resources)
    )
    stop_if_failing(played, settings.gates.failed)
    return [
        [
            tokens
            for trajectory in speakers
            for turn in trajectory.turns
            for tokens in (turn.given.tokens, *(span.tokens for span in turn.sampled))
        ]
        for speakers in by_episode(played)
    ]


def boundless(spec: RolloutSpec) -> RolloutSpec:
    """The same rules for tokens that are bytes, without limits of length."""
    return replace(
        spec,
        max_tokens=sys.maxsize,
        max_observation_tokens=BYTES_A_TOKEN * spec.max_observation_tokens,
        max_model_len=sys.maxsize,
        tasks={name: boundless(task) for name, task in spec.tasks.items()},
    )


def unshown(
    experiment: Experiment, tokenizer: PreTrainedTokenizerBase, problems: Sequence[Problem]
) -> list[Spans]:
    """The same where nobody demonstrates: HEARD prompts, each with an empty call of every tool."""
    spec = rollout_spec(experiment, tokenizer)
    encode, calls = reply_encoder(tokenizer), list[tuple[int, ...]]()
    for tool in spec.schemas:
        properties = tool.parameters.get("properties")
        arguments = dict.fromkeys(properties if isinstance(properties, Mapping) else (), "")
        message = Message("assistant", "", (ToolCall(tool.name, arguments),))
        reply = (
            *encode(reply_text(message)),
            spec.template.stop_tokens[0],
        )
        calls += [reply, spec.template.extend(reply, (Observation(tool.name, ""),))]
    by_name = by_task(problems, experiment.tasks)
    heard = [
        problem
        for name, quota in experiment.settings.quotas(HEARD).items()
        for problem in by_name[name][:quota]
    ]
    return [
        [spec.template.open(own.opening(problem), own.schemas), *calls]
        for problem in heard
        for own in [spec.of(problem)]
    ]


def _demonstrations(
    problems: Sequence[Problem], quotas: Mapping[str, int], seed: int
) -> list[EpisodeSpec]:
    """So many episodes, of which each task has its quota; a fair draw, whatever is cut off."""
    specs, seeds = list[EpisodeSpec](), (seed, "demonstrations")
    by_name = by_task(problems, quotas)
    for name, quota in quotas.items():
        chains = -(-quota // len(by_name[name]))
        everything = _episode_specs(
            by_name[name], chains, "demonstrations", "demonstration", 1.0, seeds
        )
        specs += sorted(everything, key=attrgetter("chain", "seed"))[:quota]
    return specs


def _showing(
    settings: WarmStart,
    tokenizer: PreTrainedTokenizerBase,
    spec: RolloutSpec,
    problems: Sequence[Problem],
    seed: int,
) -> Scripted:
    policy = policy_at(settings.demonstrations, settings.settings, problems, seed)
    return Scripted(reply_encoder(tokenizer), spec.template.stop_tokens[0], policy)


def play_shard(
    spec: RolloutSpec,
    gates: Gates,
    sampler: Sampler,
    episode_specs: Sequence[EpisodeSpec],
    folder: Path,
    watch: OnEpisode,
    environment_loop: EnvironmentLoop,
) -> dict[str, float]:
    """Play a shard and leave its trajectories and timings in `folder`; returns the metrics of its
    environments.

    Raises SamplerLost with the sampler, and GateClosed when more episodes failed, or lack a reward
    that needs an environment, than the experiment allows, and when nobody in them is trained.
    """
    played, measured = _collect(episode_specs, spec, sampler, folder, watch, environment_loop)
    stop_if_all_frozen(played)
    spoke = {trajectory.speaker for trajectory in played if trajectory.turns}
    for role in sorted(spec.frozen.keys() - spoke):
        # its name may be mistyped
        warning = f"agent.frozen names {role!r}, who said nothing in the episodes of a shard."
        warn_once(logger, f"{warning} Those who spoke: {', '.join(sorted(spoke)) or 'nobody'}.")
    stop_if_failing(played, gates.failed)
    stop_if_unobserved(played, gates.unscored)
    return measured


OnEpisode = Callable[[Trajectory], None]


def watching(stage: str, step: int, done: int, total: int) -> OnEpisode:
    """A listener for finished episodes that reports them as progress of a stage, of which `done`
    lie behind.
    """
    played = count(done + 1)

    def watch(_: Trajectory) -> None:
        report(Progress(stage, step, next(played), total))

    return watch


def _collect(
    episode_specs: Sequence[EpisodeSpec],
    spec: RolloutSpec,
    sampler: Sampler,
    folder: Path,
    watch: OnEpisode,
    environment_loop: EnvironmentLoop,
) -> tuple[list[Trajectory], dict[str, float]]:
    played, timings, measured = environment_loop.run(
        collect(episode_specs, spec, sampler, watch, environment_loop.resources)
    )
    write_trajectories(folder / EPISODES, played)
    write_timings(folder, timings)
    return played, measured


def _episode_specs(
    problems: Sequence[Problem],
    chains: int,
    place: int | str,
    role: Role,
    temperature: float,
    seeds: Seeds,
) -> list[EpisodeSpec]:
    return [
        EpisodeSpec(p, chain, place, role, temperature, hashing.seed(*seeds, p.id, chain))
        for p in sorted(problems, key=attrgetter("id"))
        for chain in range(chains)
    ]
