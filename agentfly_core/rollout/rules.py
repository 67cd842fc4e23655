"""The settings of an episode, the policies and chat services that reply for untrained roles, and
the exceptions that end an episode.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from agentfly_core.authoring.chat_template import ChatTemplate, Conversation, ToolSchema
from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.tool import Tool
from agentfly_core.inference.sampler import Sampler, SamplingParams
from agentfly_core.inference.templates.model import ModelTemplate
from agentfly_core.records.trajectory import (
    Ending,
    Message,
    Observation,
    Problem,
    Role,
    Sampled,
)
from agentfly_core.rollout.history.branching import ForkRule
from agentfly_core.rollout.history.forks import ForkOrigin
from agentfly_core.system.formats import hashing
from agentfly_core.system.formats.text import shown

if TYPE_CHECKING:
    from agentfly_core.inference.endpoints.chat_service import ChatService


class PromptTooLong(ValueError):
    """The first prompts of some problems are so long that they leave no room for a reply.

    Example: `PromptTooLong({"add-41-58": 310}, limit=256)`. The first prompt of the problem
    `add-41-58` has 310 tokens, but `agent.max_model_len` is 256.
    """

    def __init__(self, tokens: Mapping[str, int], limit: int) -> None:
        worst = sorted(tokens, key=tokens.__getitem__, reverse=True)
        listed = ", ".join(f"{problem!r} has {tokens[problem]}" for problem in worst[:3])
        super().__init__(
            f"For {len(tokens)} of the problems, the first prompt leaves no room for a reply. "
            f"agent.max_model_len is {limit} tokens, but the prompt of {listed}. Raise "
            f"agent.max_model_len above {tokens[worst[0]]}, shorten agent.system or the tool "
            "descriptions, or remove these problems from the data."
        )


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """An episode to play: `EpisodeSpec(problem, chain=3, step=7, role="train", temperature=1.0,
    seed=5577006791)`.

    - `step`: the number of the training step. Evaluations have the name of the data split
      instead, such as "test", and demonstrations have "demonstrations".
    - `chain`: the index of the episode among the `chains` episodes of its problem in this step.
      Forks that agents make with `Episode.fork` have indices from `chains` on.
    - `spares`: further episodes of the problem, for `rollout.branching`. Each fork of this episode
      replaces one spare, and gets the spare's `chain`. The remaining spares become the spares of
      the forks, which may fork again. Spares that no fork replaces are played as ordinary episodes.
    - `blamed`: the error of each episode that killed a worker process, by the episode's id. These
      episodes are not played again.
    - `suspects`: ids of episodes that may have killed a worker process. These episodes are played
      one by one after all other episodes.
    - `role`: the use of the episode: "train", "baseline", "evaluation" or "demonstration"
    """

    problem: Problem
    chain: int
    step: int | str
    role: Role
    temperature: float
    seed: int
    chains: int = 1
    blamed: Mapping[str, str] = field(default_factory=dict)
    suspects: Sequence[str] = ()
    spares: tuple[EpisodeSpec, ...] = ()

    @property
    def leaves(self) -> int:
        """The number of episodes to play: this episode and the further episodes in `spares`.

        Each fork replaces one spare, so forks do not change this number.
        """
        return 1 + len(self.spares)

    @property
    def id(self) -> str:
        """The id of the episode."""
        return hashing.short(self.step, self.problem.id, self.chain)

    def trajectory(self, speaker: str) -> str:
        """Return the id of a speaker's trajectory."""
        return hashing.short(self.step, self.problem.id, self.chain, speaker)

    @property
    def failed(self) -> str:
        """The error if this episode killed or blocked a worker process, otherwise "".

        An episode with an error is not played again. It is recorded as failed.
        """
        return self.blamed.get(self.id, "")

    @property
    def alone(self) -> bool:
        """Whether this episode may have killed a worker process.

        Such episodes are played one by one, after all other episodes.
        """
        return self.id in self.suspects


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkedSpec(EpisodeSpec):
    """A fork: an episode that branches off from the episode `parent` at the position `origin`."""

    parent: EpisodeSpec
    origin: ForkOrigin

    @classmethod
    def of(
        cls,
        parent: EpisodeSpec,
        origin: ForkOrigin,
        chain: int,
        spares: tuple[EpisodeSpec, ...] = (),
    ) -> ForkedSpec:
        """Make the spec of an episode that branches off from `parent` at `origin`.

        `chain` and `spares` are fields of the new spec; see `EpisodeSpec`.
        """
        seed = hashing.seed(parent.seed, *origin.place)
        own = {one.name: getattr(parent, one.name) for one in fields(EpisodeSpec)}
        own |= {"chain": chain, "seed": seed, "spares": spares}
        return cls(**own, parent=parent, origin=origin)

    @property
    def id(self) -> str:
        """The id of the episode, derived from `parent.id` and the position of the fork."""
        return hashing.short(self.parent.id, *self.origin.place)

    def trajectory(self, speaker: str) -> str:
        """Return the id of a speaker's trajectory."""
        return hashing.short(self.id, speaker)


@dataclass(frozen=True, slots=True)
class FrozenPolicy:
    """A fixed policy that replies for an untrained role (kind of speaker) of the agent.

    Example: `FrozenPolicy("run:demo@7", sampler)`. `sampler` generates the replies of this policy.
    """

    name: str
    sampler: Sampler


@dataclass(frozen=True, slots=True)
class FrozenEndpoint:
    """A chat service that replies for an untrained role (kind of speaker) of the agent.

    Example: `FrozenEndpoint("endpoint:gpt", ChatService(...))`.
    """

    name: str
    service: ChatService


@dataclass(frozen=True, slots=True)
class FrozenSelf:
    """Lets the current policy reply for a role of the agent without training this role.

    Example: `FrozenSelf("self")`.
    """

    name: str


Frozen = FrozenPolicy | FrozenEndpoint | FrozenSelf


@dataclass(frozen=True)
class Form:
    """The settings that determine how a conversation is rendered as a prompt.

    - `tools`: the schemas of the tools in the prompt
    - `thinking`: whether reasoning is switched on; None means the default of the template
    """

    tools: tuple[ToolSchema, ...]
    thinking: bool | None = None

    @cached_property
    def key(self) -> str:
        """A digest of `tools` and `thinking`, as 16 hex digits."""
        # not sorted, because templates keep the order of a tool's parameters
        return hashing.short(json.dumps([[tool.listed for tool in self.tools], self.thinking]))


class Sampling(TypedDict, total=False):
    """Sampling settings of a reply. The experiment's settings are the defaults.

    - `stop`: strings at which the reply ends. Each must be in `agent.stop`. The message does not
      contain the string at which the reply ended.
    - `temperature`: the sampling temperature. Replies at 0 are greedy and are not used in training.
    - `max_tokens`: the maximum length of the reply in tokens
    - `thinking`: switches reasoning on or off. This requires `template: model`.
    - `tools`: the tool schemas in the prompt. By default, these are the speaker's tools. Other
      schemas start a new conversation. The agent's own code must then answer the tool calls.
    - `entropies`: record the entropy of each sampled token's distribution in `Reply.entropies`
    """

    stop: Sequence[str] | None
    temperature: float | None
    max_tokens: int | None
    thinking: bool | None
    tools: Sequence[ToolSchema] | None
    entropies: bool


@dataclass(frozen=True, slots=True)
class ReplySettings:
    """Settings of one reply. A `temperature` of None means the experiment's temperature."""

    params: SamplingParams
    temperature: float | None
    form: Form


@dataclass(frozen=True, kw_only=True)
class EpisodeRules:
    """The rules of an episode. Lengths are in tokens.

    - `stop`: all strings that may end a reply
    - `end_tokens`: the tokens of the model that end a reply, in addition to the template's stop
      tokens
    - `memory`: the folder that `Episode.memory` returns; None means an empty folder
    - `frozen`: maps each role that is not trained to the policy or chat service that replies for it
    - `branching`: the settings of `rollout.branching`, or None if episodes do not branch
    """

    template: ChatTemplate
    tools: tuple[Tool, ...]
    system: str
    max_turns: int
    max_tokens: int
    max_observation_tokens: int
    max_model_len: int
    max_sampled_tokens: int = sys.maxsize
    stop: tuple[str, ...] = ()
    end_tokens: tuple[int, ...] = ()
    memory: Path | None = None
    frozen: Mapping[str, Frozen] = field(default_factory=dict)
    branching: ForkRule | None = None

    @cached_property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """The tool schemas that the model reads."""
        return tuple(tool.schema for tool in self.tools)

    def opening(self, problem: Problem) -> tuple[Message | Observation, ...]:
        """Return the first messages: the system message, and the messages of the problem.

        Raises ValueError if `agent.system` is set and the problem also has a system message.
        """
        messages = problem.messages or (Message("user", problem.prompt),)
        if not self.system:
            return messages
        if isinstance(messages[0], Message) and messages[0].role == "system":
            raise ValueError(
                f"The problem {problem.id!r} has a system message, {shown(messages[0].content)}, "
                f"and agent.system is {shown(self.system)}: remove one of them."
            )
        return (Message("system", self.system), *messages)

    @cached_property
    def form(self) -> Form:
        """The default settings of prompts: all tools, and the template's default for reasoning."""
        return Form(self.schemas)

    @cached_property
    def _templates(self) -> dict[str, ChatTemplate]:
        return {}

    def template_of(self, form: Form) -> ChatTemplate:
        """Return the template that renders conversations with the settings in `form`.

        Raises ValueError if `form` switches reasoning on or off, but the template does not support
        this.
        """
        if form.key not in self._templates:
            template = self.template
            if isinstance(template, ModelTemplate):
                template = template.bound(form.tools, form.thinking)
            elif form.thinking is not None:
                raise ValueError(f"reply(thinking={form.thinking}) works only with template=model.")
            self._templates[form.key] = template
        return self._templates[form.key]

    def sampling(
        self, temperature: float, stop: Sequence[str] | None, max_tokens: int | None
    ) -> SamplingParams:
        """Return the sampling parameters of a reply.

        If `stop` or `max_tokens` is None, the experiment's value is used. Raises ValueError if
        `stop` contains a string that is not in `agent.stop`, if `max_tokens` is below 1, or if
        `temperature` is negative or not finite.
        """
        strings = self.stop if stop is None else tuple(stop)
        if not set(strings) <= set(self.stop):
            raise ValueError(
                f"reply(stop={stop!r}): each string must be in agent.stop, which is "
                f"{list(self.stop)}. Add the missing strings to agent.stop. The sampler needs all "
                "stop strings when it starts."
            )
        if not 0 <= temperature < math.inf:
            raise ValueError(f"reply(temperature={temperature}): expected 0 (greedy) or more.")
        most = self.max_tokens if max_tokens is None else max_tokens
        if most < 1:
            raise ValueError(f"reply(max_tokens={most}): expected 1 or more.")
        ends = dict.fromkeys((*self.template.stop_tokens, *self.end_tokens))
        return SamplingParams(temperature, most, tuple(ends), strings)

    def parse(
        self, sampled: Sequence[Sampled], stop: Sequence[str], form: Form | None = None
    ) -> Message:
        """Parse a reply into a message.

        `sampled` has the sampled spans of the reply in order. `stop` lists the strings at which the
        reply may end. `form` has the settings that rendered the prompt (by default,
        `EpisodeRules.form`).
        """
        finish, tokens = sampled[-1].finish, [*chain.from_iterable(s.tokens for s in sampled)]
        ended_by = (stop,) if finish == "stop_string" else ()
        # the template can parse its own stop tokens, but no other end tokens of the model
        foreign = finish == "stop" and tokens[-1] not in self.template.stop_tokens
        text = tuple(tokens[:-1] if foreign else tokens)
        message = self.template_of(form or self.form).parse(text, *ended_by)
        return replace(message, cut=finish == "length")

    def limit(self, sampled: Sequence[Sampled], prompt: int, left: int) -> Ending | None:
        """Return the ending of the episode if a reply reached a limit of the episode, else None.

        - `prompt`: the number of tokens in the prompt of the reply
        - `left`: the number of tokens that the episode was still allowed to sample before the reply
        """
        tokens = sum(len(span.tokens) for span in sampled)
        if sampled[-1].finish != "length":
            return None
        if prompt + tokens >= self.max_model_len:
            return Ending.MAX_MODEL_LEN
        return Ending.MAX_SAMPLED_TOKENS if tokens == left else None

    def too_long(self, prompt: Conversation, tokens: int, is_main: bool) -> Exception:
        """Return the error for a prompt of `tokens` tokens, which leaves no room for a reply.

        The error is PromptTooLong if the problem itself is too long: the prompt has only the system
        message and the messages of the problem, and belongs to the main speaker (`is_main`). For
        any other prompt, the error is EpisodeOver.
        """
        if is_main and prompt.messages == self.opening(prompt.problem):
            return PromptTooLong({prompt.problem.id: tokens}, self.max_model_len)
        reason = (
            f"The prompt has {tokens} tokens but agent.max_model_len is {self.max_model_len}; "
            "shorten the messages of the agent."
        )
        return EpisodeOver(Ending.MAX_MODEL_LEN, reason)


class EpisodeOver(Exception):
    """Raised in an agent's code when its episode has ended. Agents must not catch it."""

    def __init__(self, ending: Ending, reason: str = "") -> None:
        super().__init__(reason or ending.value)
        self.ending = ending


class StartAgain(ServiceFailure):
    """Raised by an agent to play its episode once more from the beginning.

    Before the second attempt, the environments are reset. If the second attempt also raises
    StartAgain, the episode ends FAILED.

        if killed_by_a_foreign_signal:
            raise StartAgain("The program was killed by signal 9.")
    """
