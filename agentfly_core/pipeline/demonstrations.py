"""Play training problems with the script of the warm start.

The script is a function that replies instead of a model.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from pathlib import Path

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.event_loop import run
from agentfly_core.config.parts import WarmStart
from agentfly_core.experiment.policy_path import policy_at
from agentfly_core.inference.scripted import Scripted
from agentfly_core.inference.templates.model import reply_tokens
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline.playing import (
    OnEpisode,
    collect_into,
    episode_specs,
    scripted,
    watching,
)
from agentfly_core.pipeline.stop_conditions import GateClosed, stop_if_failing
from agentfly_core.pipeline.workers.job import NO_BLAME, Blame
from agentfly_core.records.problem_schedule import by_task
from agentfly_core.records.speakers import by_episode
from agentfly_core.records.trajectory import Message, Observation, Problem, ToolCall, Trajectory
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.resources import ResourceManager, resources_for
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.rollout.shard import NO_ANSWER, collect

REHEARSED = 8
"""The number of trial demonstrations. The trial demonstrations are played and scored first, before
the warm start's demonstrations are played.
"""
HEARD = 512
"""The number of demonstrations from which the tokenizer of the model `nano` is made."""
BYTES_A_TOKEN = 4
Spans = list[tuple[int, ...]]
"""The token ids of an episode, as a list of spans. Each prompt, tool answer and reply is a span."""


@dataclass(frozen=True)
class DemonstrationPlayer:
    """Plays the demonstrations of a warm start: episodes in which a function replies instead of the
    model.

    Example: `DemonstrationPlayer(spec, tokenizer, problems, warm_start, settings.quotas, seed,
    failed)`.

    - `quotas`: a function that divides a number of episodes among the tasks
    - `failed`: the largest allowed share of failed episodes. If more episodes fail, the methods
      raise GateClosed.
    - `blame`: the episodes that have killed, or may have killed, a worker process
    """

    spec: RolloutSpec
    tokenizer: PreTrainedTokenizerBase
    problems: Sequence[Problem]
    warm_start: WarmStart
    quotas: Callable[[int], Mapping[str, int]]
    seed: int
    failed: float
    blame: Blame = NO_BLAME

    @cached_property
    def script(self) -> Scripted:
        """A sampler that returns the replies of the function that `warm_start` names."""
        path, settings = self.warm_start.demonstrations, self.warm_start.settings
        policy = policy_at(path, settings, self.problems, self.seed)
        return scripted(policy, self.tokenizer, self.spec.template)

    def episodes(self, count: int) -> list[EpisodeSpec]:
        """Return the specs of `count` episodes, divided among the tasks by `quotas`.

        A problem is repeated only after each problem of its task has an episode.
        """
        specs, seeds = list[EpisodeSpec](), (self.seed, "demonstrations")
        quotas = self.quotas(count)
        by_name = by_task(self.problems, quotas)
        for name, quota in quotas.items():
            # rounded up, and the surplus is removed after sorting
            chains = -(-quota // len(by_name[name]))
            everything = episode_specs(
                by_name[name], chains, "demonstrations", "demonstration", 1.0, seeds
            )
            # sorted by `chain` first, because each problem is played once before problems are
            # repeated
            specs += sorted(everything, key=attrgetter("chain", "seed"))[:quota]
        return self.blame.mark(specs)

    def play(self, count: int, folder: Path, resources: ResourceManager) -> None:
        """Play `count` episodes and store them in `folder`.

        If there are fewer than `count` problems, problems are played several times.
        """
        specs, watch = self.episodes(count), watching("demonstrate", 0, 0, count)
        played, _ = collect_into(specs, self.spec, self.script, folder, watch, resources)
        stop_if_failing(played, self.failed)

    def rehearse(self, resources: ResourceManager) -> list[Trajectory]:
        """Play trial demonstrations, and compute the rewards that need an environment.

        The number of trial demonstrations is the constant REHEARSED. Also play a test episode in
        which each reply is a refusal to answer, without a tool call.

        Raises GateClosed if too many demonstrations fail. Also raises GateClosed if the agent
        returns an ending that requires an answer, such as `Ending.TERMINAL`, but leaves the test
        episode without an answer.
        """
        # the rollout skips rewards of episodes with the role "demonstration"
        specs = [replace(one, role="train") for one in self.episodes(REHEARSED)]
        played = self._collect(self.script, specs, lambda _: None, resources)
        unsure = scripted(_unsure, self.tokenizer, self.spec.template)
        # one episode is enough, because the reply is the same for each problem
        unanswered = self._collect(unsure, specs[:1], lambda _: None, resources)
        stop_if_failing(played, self.failed)
        if errors := [one.error for one in unanswered if one.error and NO_ANSWER in one.error]:
            raise GateClosed(f"The warm start was not started: {errors[0]}.")
        return played

    def spans(self) -> list[Spans]:
        """Play demonstrations, and return the token spans of each episode.

        The tokenizer of the tiny model `nano` is made from these spans. The number of
        demonstrations is the constant HEARD. Raises GateClosed if too many episodes fail.
        """
        watch = watching("model", 0, 0, HEARD)
        with resources_for(self.spec.limits) as resources:
            played = self._collect(self.script, self.episodes(HEARD), watch, resources)
        try:
            stop_if_failing(played, self.failed)
        except GateClosed as closed:
            # other policies are played with these tokens, too
            raise GateClosed(
                "The tokenizer of the model nano is made from demonstrations of "
                f"{self.warm_start.demonstrations}, but too many of these episodes failed: "
                f"{closed}"
            ) from None
        return spans_of(played)

    def _collect(
        self,
        sampler: Scripted,
        specs: Sequence[EpisodeSpec],
        watch: OnEpisode,
        resources: ResourceManager,
    ) -> list[Trajectory]:
        played, _, _ = run(collect(specs, self.spec, sampler, watch, resources))
        return played


def spans_of(played: Sequence[Trajectory]) -> list[Spans]:
    """Return the tokens of each episode as a list of spans. Each prompt, tool answer and reply of
    each speaker is a span.
    """
    return [
        [
            tokens
            for trajectory in speakers
            for turn in trajectory.turns
            for tokens in (turn.given.tokens, *(span.tokens for span in turn.sampled))
        ]
        for speakers in by_episode(played)
    ]


async def _unsure(conversation: Conversation) -> str:
    return "I do not know."


def boundless(spec: RolloutSpec) -> RolloutSpec:
    """Return a copy of the spec, with limits that suit a byte tokenizer.

    A byte tokenizer needs more tokens for the same text. In the copy, replies and contexts may have
    any length, and the limit on observations is multiplied by the constant BYTES_A_TOKEN.
    """
    return replace(
        spec,
        max_tokens=sys.maxsize,
        # observations are also shortened in training, and the script must see about the same text
        max_observation_tokens=BYTES_A_TOKEN * spec.max_observation_tokens,
        max_model_len=sys.maxsize,
        tasks={name: boundless(task) for name, task in spec.tasks.items()},
    )


def unshown(
    spec: RolloutSpec,
    tokenizer: PreTrainedTokenizerBase,
    problems: Sequence[Problem],
    quotas: Mapping[str, int],
) -> list[Spans]:
    """Return texts for the tokenizer of the tiny model `nano`, as byte tokens.

    The function is used for experiments without demonstrations. `tokenizer` is a byte tokenizer.
    Each item of the result contains the prompt of a problem, and a call of every tool with empty
    arguments and an empty result. `quotas` maps the name of each task to the number of its problems
    that are used.
    """
    by_name = by_task(problems, quotas)
    heard = [problem for name, quota in quotas.items() for problem in by_name[name][:quota]]
    opening, template = spec.of(heard[0]).opening(heard[0]), spec.template_of(spec.form)
    calls: list[tuple[int, ...]] = []
    for tool in spec.schemas:
        properties = tool.parameters.get("properties")
        arguments = dict.fromkeys(properties if isinstance(properties, Mapping) else (), "")
        message = Message("assistant", "", (ToolCall(tool.name, arguments),))
        reply = reply_tokens(template, tokenizer, message)
        answer = (Observation(tool.name, ""),)
        calls += [reply, template.extend(reply, answer, (*opening, message)) or ()]
    return [
        [spec.template.open(own.opening(problem), own.schemas), *calls]
        for problem in heard
        for own in [spec.of(problem)]
    ]
