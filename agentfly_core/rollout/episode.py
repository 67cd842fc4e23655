"""The episode that an agent plays: samples replies, calls tools, records, enforces limits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from agentfly_core.authoring import calling
from agentfly_core.authoring.chat_template import ChatTemplate, Conversation, ToolSchema
from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.injection import Lent
from agentfly_core.authoring.loop_crossing import LoopCrossing
from agentfly_core.authoring.tool import Tool
from agentfly_core.formats import hashing
from agentfly_core.formats.text import clip, did_you_mean, fault
from agentfly_core.inference.sampler import Request, SamplerSession, SamplingParams
from agentfly_core.records.timing import Doing, Span, moment
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Given,
    Message,
    Observation,
    Problem,
    Role,
    Sampled,
    ToolCall,
    Turn,
)

STATE_SECONDS = 30.0


class PromptTooLong(ValueError):
    """Prompts leave no room to reply: `PromptTooLong({"add-41-58": 310}, limit=256)`, in tokens."""

    def __init__(self, tokens: Mapping[str, int], limit: int) -> None:
        worst = sorted(tokens, key=tokens.__getitem__, reverse=True)
        listed = ", ".join(f"{problem!r} has {tokens[problem]}" for problem in worst[:3])
        super().__init__(
            f"What the model reads first leaves no room for a reply in {len(tokens)} of the "
            f"problems: agent.max_model_len is {limit} tokens, {listed}. Raise it to more than "
            f"{tokens[worst[0]]}, shorten agent.system or what the tools say of themselves, or "
            "leave these problems out of the data."
        )


@dataclass(frozen=True, slots=True)
class EpisodeSpec:
    """One episode to be played: `EpisodeSpec(problem, chain=3, step=7, role="train",
    temperature=1.0, seed=5577006791)`.

    `step` is the split's name where a split is evaluated or demonstrated.
    """

    problem: Problem
    chain: int
    step: int | str
    role: Role
    temperature: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class EpisodeRules:
    """The rules of an episode, the same for all agents; lengths in tokens.

    `stop` are all strings at which a reply may end.
    """

    template: ChatTemplate
    tools: tuple[Tool, ...]
    system: str
    max_turns: int
    max_tokens: int
    max_observation_tokens: int
    max_model_len: int
    stop: tuple[str, ...] = ()

    @cached_property
    def schemas(self) -> tuple[ToolSchema, ...]:
        """What the model reads about its tools."""
        return tuple(tool.schema for tool in self.tools)

    def opening(self, problem: Problem) -> tuple[Message, ...]:
        """What a model that is asked a problem reads first."""
        system = (Message("system", self.system),) if self.system else ()
        return (*system, Message("user", problem.prompt))

    def sampling(
        self, temperature: float, stop: Sequence[str] | None, max_tokens: int | None
    ) -> SamplingParams:
        """How a reply is sampled, by the rules where `stop` and `max_tokens` are None.

        Raises ValueError for what no sampler takes, and for a stop string that is not in the rules.
        """
        strings = self.stop if stop is None else tuple(stop)
        if not set(strings) <= set(self.stop):
            raise ValueError(
                f"reply(stop={stop!r}): expected a list of strings among those of agent.stop, "
                f"{list(self.stop)}. Add it there: the sampler has to know them when it starts."
            )
        if not 0 <= temperature < math.inf:
            raise ValueError(f"reply(temperature={temperature}): expected 0 (greedy) or more.")
        most = self.max_tokens if max_tokens is None else max_tokens
        if most < 1:
            raise ValueError(f"reply(max_tokens={most}): expected 1 or more.")
        return SamplingParams(temperature, most, self.template.stop_tokens, strings)

    def require_room(self, problems: Iterable[Problem]) -> None:
        """Raise PromptTooLong where the opening of a problem leaves no token for a reply."""
        tokens = {p.id: len(self.template.open(self.opening(p), self.schemas)) for p in problems}
        if long := {
            problem: count for problem, count in tokens.items() if count >= self.max_model_len
        }:
            raise PromptTooLong(long, self.max_model_len)


class EpisodeOver(Exception):
    """Raised in an agent when its episode has ended; let it pass."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.value)
        self.ending = ending


class Episode:
    """The playing of one problem by one agent.

    An agent is an `async def agent(episode: Episode) -> Ending`: it calls `reply` and `call` and
    says how it ended. It runs on the agents' loop, and what it asks for is done on the loop where
    the episode is played, until `leave`. `opening` is what the model reads first, `turns` the
    record so far, `closing` what was answered and not yet read.
    """

    def __init__(
        self, episode_spec: EpisodeSpec, rules: EpisodeRules, session: SamplerSession
    ) -> None:
        self.problem = episode_spec.problem
        self.opening: tuple[Message | Observation, ...] = rules.opening(self.problem)
        self.turns: list[Turn] = []
        self.closing: list[Observation] = []
        self.spans: list[Span] = []
        self.lent: dict[type[Lent], Lent] = {Problem: self.problem}
        self._spec, self._rules, self._session = episode_spec, rules, session
        self._tools = {tool.name: tool for tool in rules.tools}
        self._context: list[int] = []
        self._here = LoopCrossing()

    async def reply(
        self,
        *read: Message | Observation,
        stop: Sequence[str] | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> Message:
        """What the model says after reading these; its calls are not answered yet.

        `stop`, some of agent.stop, `temperature` and `max_tokens` are the experiment's where they
        are None. The message ends before the stop string at which the reply stopped.

        Raises EpisodeOver when there were `max_turns` replies or `max_model_len` tokens,
        PromptTooLong where these are too few for the first reply, and SamplerLost.
        """
        own = self._spec.temperature if temperature is None else temperature
        params = self._rules.sampling(own, stop, max_tokens)
        return await self._here.do(
            self._reply(read, params, temperature), EpisodeOver(Ending.FAILED)
        )

    async def call(self, *calls: ToolCall | BadCall) -> tuple[Observation, ...]:
        """The tools' answers, in the order of the calls; those of parallel tools run concurrently.

        A call that cannot be read or carried out is answered with an error. Raises EpisodeOver
        after a tool that ends the episode, and ServiceFailure.
        """
        return await self._here.do(self._call(*calls), EpisodeOver(Ending.FAILED))

    async def leave(self) -> None:
        """Cancel what the agent still waits for, and refuse what it asks from now on."""
        await self._here.close()

    @contextmanager
    def timed(self, doing: Doing) -> Iterator[None]:
        """Note how long the block takes, and what for."""
        start = moment()
        try:
            yield
        finally:
            self.spans.append(Span(doing, start, moment()))

    async def _reply(
        self,
        read: tuple[Message | Observation, ...],
        params: SamplingParams,
        temperature: float | None,
    ) -> Message:
        if len(self.turns) == self._rules.max_turns:
            raise EpisodeOver(Ending.MAX_TURNS)
        template = self._rules.template
        if self.turns:
            given = template.extend(self.turns[-1].sampled[-1].tokens, read)
        else:
            given = template.open(read, self._rules.schemas)
        lent = [thing for thing in self.lent.values() if isinstance(thing, Environment)]
        states = [await _state_key(environment) for environment in lent]
        sampled = await self._sample(given, read, params)
        self._context += (*given, *sampled.tokens)
        if sampled.finish == "stop_string":
            message = template.parse(sampled.tokens, params.stop)
        else:
            message = template.parse(sampled.tokens)
        state = " ".join(filter(None, states))
        turn = Turn(read, Given(given), message, (sampled,), temperature=temperature, state=state)
        self.turns.append(turn)
        self.closing.clear()
        if sampled.finish == "length" and self._room() < 1:
            raise EpisodeOver(Ending.MAX_MODEL_LEN)
        return message

    async def _call(self, *calls: ToolCall | BadCall) -> tuple[Observation, ...]:
        before = len(self.closing)
        with self.timed("tools"):
            for parallel, run in groupby(calls, self._is_parallel):
                if parallel:
                    self.closing += await self._answers(*run)
                else:
                    for call in run:
                        observation = await self._answer(call)
                        self.closing.append(observation)
                        if not observation.error and self._tools[observation.tool].ends_episode:
                            raise EpisodeOver(Ending.TERMINAL)
        return tuple(self.closing[before:])

    def _room(self) -> int:
        return self._rules.max_model_len - len(self._context)

    async def _sample(
        self,
        given: tuple[int, ...],
        read: tuple[Message | Observation, ...],
        params: SamplingParams,
    ) -> Sampled:
        room = self._room() - len(given)
        if room < 1 and not self.turns:
            raise PromptTooLong({self.problem.id: len(given)}, self._rules.max_model_len)
        if room < 1:
            raise EpisodeOver(Ending.MAX_MODEL_LEN)
        request = Request(
            prompt=(*self._context, *given),
            params=replace(params, max_tokens=min(params.max_tokens, room)),
            conversation=self._conversation(read),
        )
        with self.timed("generating"):
            return await self._session.sample(request)

    def _conversation(self, read: tuple[Message | Observation, ...]) -> Conversation:
        past = (item for turn in self.turns for item in (*turn.read, turn.reply))
        turn = len(self.turns)
        return Conversation(
            problem=self.problem,
            chain=self._spec.chain,
            turn=turn,
            messages=(*past, *read),
            tools=self._rules.schemas,
            seed=hashing.seed(self._spec.seed, turn),
        )

    def _is_parallel(self, call: ToolCall | BadCall) -> bool:
        return (
            isinstance(call, ToolCall)
            and call.name in self._tools
            and self._tools[call.name].parallel
        )

    async def _answers(self, *calls: ToolCall | BadCall) -> list[Observation]:
        answers = await asyncio.gather(
            *(self._answer(call) for call in calls), return_exceptions=True
        )
        for failure in answers:
            if isinstance(failure, BaseException):
                raise failure
        return [answer for answer in answers if isinstance(answer, Observation)]

    async def _answer(self, call: ToolCall | BadCall) -> Observation:
        if isinstance(call, BadCall):
            text = f"This tool call could not be read: {clip(call.fault, 500)}"
            answer = Observation("unreadable", text, error=True)
        elif call.name in self._tools:
            answer = await self._tools[call.name].answer(call, self.lent)
        else:
            name = clip(call.name, 80)
            text = f"There is no tool {name!r}.{did_you_mean(name, list(self._tools))}"
            answer = Observation("unknown", text, error=True)
        most = self._rules.max_observation_tokens
        return replace(answer, content=self._rules.template.fit(answer.content, most))


Agent = Callable[[Episode], Awaitable[Ending]]


async def _state_key(environment: Environment) -> str:
    async def key() -> str:
        return environment.state_key()

    kind = type(environment).__name__
    try:
        return await calling.call(key, STATE_SECONDS, f"{kind}.state_key()", [environment])
    except ServiceFailure:
        raise
    except Exception as error:  # an author's own, like start and reset
        raise ServiceFailure(f"{kind} could not name its state: {fault(error)}") from error
