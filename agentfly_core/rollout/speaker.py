"""Speakers of an episode. They sample replies and call tools within the episode's limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Unpack

from agentfly_core.authoring.chat_template import ChatTemplate, Conversation
from agentfly_core.inference.sampler import HiddenStates, Request
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    Sampled,
    ToolCall,
    Turn,
)
from agentfly_core.rollout.episode_state import EpisodeState
from agentfly_core.rollout.history import timeline
from agentfly_core.rollout.history.prompts import SampledReply, prompt_after
from agentfly_core.rollout.history.timeline import EpisodeBranch, EpisodePlace, Reply
from agentfly_core.rollout.rules import EpisodeOver, EpisodeRules, Form, ReplySettings, Sampling
from agentfly_core.rollout.thinking import sample_spans
from agentfly_core.rollout.tool_use import ToolUse
from agentfly_core.system.formats import hashing


class Context:
    """A conversation that only grows. A prompt with a changed history needs a new context."""

    def __init__(self, speaker: Speaker, *messages: Message | Observation) -> None:
        self._speaker, self._begin = speaker, messages

    async def reply(self, *read: Message | Observation, **sampling: Unpack[Sampling]) -> Message:
        """Append messages and sample a reply. Tool calls in the reply are not executed.

        Raises EpisodeOver at the limit `max_turns`, `max_model_len` or `max_sampled_tokens`. Raises
        PromptTooLong if the first prompt of the episode leaves no room for a reply. Raises
        ServiceLost if the sampler dies.
        """
        before = self._last
        new = (*self._begin, *read) if before is None else read
        settings = self._speaker.settings(sampling)
        return _within_limits(await self._speaker.turn_behind(before, new, settings, self))

    async def hidden(
        self, layers: Sequence[int] | None, *read: Message | Observation
    ) -> HiddenStates:
        """Return hidden states at the last token of the prompt that `reply` would use for `read`.

        `layers` are indices of layers; None means all layers. Nothing is appended or recorded.
        Raises NoReply if a function, a chat service or vLLM samples the replies, and ValueError for
        an unknown layer. For a prompt that is too long, raises the same errors as `reply`.
        """
        before = self._last
        new = (*self._begin, *read) if before is None else read
        return await self._speaker.hidden_behind(before, new, layers)

    @property
    def messages(self) -> tuple[Message | Observation, ...]:
        """All messages and replies of the context, in the form that `Speaker.reply_to` takes."""
        return timeline.messages_of(self._last) or self._begin

    @property
    def tokens(self) -> int:
        """The number of tokens in the context."""
        return len(timeline.tokens_of(self._last))

    @property
    def _last(self) -> Reply | None:
        return self._speaker.history.last.get(self)


MakesSpeaker = Callable[..., "Speaker"]
"""A function that creates a speaker. It has the parameters of the class `Speaker`."""


class Speaker:
    """A participant of an episode, with its own instructions, tools and contexts (conversations).

        planner = episode.speaker("planner", system="Name the next step.")
        step = await planner.reply(Message("user", episode.problem.prompt))

    In this example, "planner" is the role. A second speaker of this role is named "planner/2".
    """

    def __init__(
        self, state: EpisodeState, name: str, rules: EpisodeRules, *begin: Message
    ) -> None:
        self.name, self.rules = name, rules
        self.state, self._begin = state, begin
        self._tools = ToolUse(state, name, rules)
        self._replies: list[Reply] = []
        self._first = self.context()

    @property
    def role(self) -> str:
        """The speaker's role, for example `planner` if the name is `planner/2`."""
        return self.name.partition("/")[0]

    async def reply(self, *read: Message | Observation, **sampling: Unpack[Sampling]) -> Message:
        """Sample a reply in the speaker's first context (conversation); see `Context.reply`."""
        return await self._first.reply(*read, **sampling)

    async def hidden(
        self, layers: Sequence[int] | None, *read: Message | Observation
    ) -> HiddenStates:
        """Return hidden states for the speaker's first context; see `Context.hidden`."""
        return await self._first.hidden(layers, *read)

    async def reply_to(
        self, messages: Sequence[Message | Observation], **sampling: Unpack[Sampling]
    ) -> Message:
        """Sample a reply as `turn` does. Return its message, or raise EpisodeOver at a limit."""
        return _within_limits(await self.turn(messages, **sampling))

    async def turn(
        self, messages: Sequence[Message | Observation], **sampling: Unpack[Sampling]
    ) -> Reply:
        """Sample a reply to a full message list, and return it with its tokens.

            reply = await episode.turn([Message("user", "41+58?")], max_tokens=64)
            reply.message.content, reply.finish, reply.logprobs

        If `messages` begins with an earlier conversation, the prompt reuses the tokens of that
        conversation. Of several such conversations, the longest is reused. A reply that reaches a
        limit of the episode is returned, with `Reply.limit` set. Raises EpisodeOver if a limit
        leaves no turn or no token for a reply. Raises PromptTooLong if the episode's first prompt
        is already too long, and ServiceLost if the sampler dies.
        """
        settings = self.settings(sampling)
        form = settings.form.key
        before, shared = self.history.longest_beginning(self.name, form, messages)
        return await self.turn_behind(before, tuple(messages[shared:]), settings)

    def context(self, *messages: Message | Observation) -> Context:
        """Open a new context with the speaker's instructions and these messages."""
        return Context(self, *self._begin, *messages)

    async def call(self, *calls: ToolCall | BadCall) -> tuple[Observation, ...]:
        """Execute calls in order. Adjacent calls of tools with `parallel=True` run concurrently.

        The observation of an invalid call is an error. Raises EpisodeOver after a successful call
        if the tool ends the episode. Raises ServiceFailure if a service fails.
        """
        return await self.state.do(self._tools.call(self.history, *calls))

    def answer(self, text: str) -> None:
        """Set the episode's answer. The episode continues. A later answer replaces this one."""
        if not isinstance(text, str):
            raise TypeError(f"answer() got {text!r:.80}, expected str; use str(...) or json.dumps.")
        self.history.answers.append((self.name, text))

    def settings(self, sampling: Sampling) -> ReplySettings:
        """Complete a reply's settings with defaults. Raises ValueError for invalid settings."""
        temperature, tools = sampling.get("temperature"), sampling.get("tools")
        own = self.state.spec.temperature if temperature is None else temperature
        params = self.rules.sampling(own, sampling.get("stop"), sampling.get("max_tokens"))
        entropies = sampling.get("entropies", False) or self._needs_entropies
        params = replace(params, entropies=entropies)
        form, thinking = self.rules.form, sampling.get("thinking")
        if tools is not None or thinking is not None:
            form = Form(form.tools if tools is None else tuple(tools), thinking)
        return ReplySettings(params, temperature, form)

    @property
    def _needs_entropies(self) -> bool:
        rule = self.rules.branching
        return rule is not None and bool(rule.beta and self.state.spec.spares)

    async def turn_behind(
        self,
        before: Reply | None,
        read: tuple[Message | Observation, ...],
        settings: ReplySettings,
        context: Context | None = None,
    ) -> Reply:
        """Sample a reply to `read`, which follows `before`. Append the new reply to `context`."""
        branch = self.history
        with branch.alone():
            work = self._reply(branch, before, read, settings)
            reply = await self.state.do(work, self.state.session.of(self.name).waits_for_all)
        if context is not None:
            branch.last[context] = reply
        return reply

    async def hidden_behind(
        self,
        before: Reply | None,
        read: tuple[Message | Observation, ...],
        layers: Sequence[int] | None,
    ) -> HiddenStates:
        """Return the hidden states at the last token of a prompt.

        The prompt consists of the conversation that ends with `before`, and of the messages `read`.
        """
        form, messages = self.rules.form, (*timeline.messages_of(before), *read)
        prompt = prompt_after(before, read, form, self.rules.template_of(form)).tokens
        self._require_room(self._conversation(self.history, messages, form, 0), len(prompt))
        work = self.state.session.of(self.name).hidden(prompt, layers, self.name)
        with self.state.timed("generating"):
            return await self.state.do(work)

    @property
    def history(self) -> EpisodeBranch:
        """The branch of the current coroutine, which has the replies so far."""
        return self.state.branch

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The recorded turns of this speaker in chronological order."""
        return timeline.turns_of(self._replies)

    @property
    def closing(self) -> tuple[Observation, ...]:
        """Tool results that the speaker got after its last reply."""
        return self.history.unread_by(self.name)

    async def _reply(
        self,
        branch: EpisodeBranch,
        before: Reply | None,
        read: tuple[Message | Observation, ...],
        settings: ReplySettings,
    ) -> Reply:
        form, template = settings.form, self.rules.template_of(settings.form)
        self._require_turn(branch)
        if not (left := self._tokens_left(branch)):
            raise EpisodeOver(Ending.MAX_SAMPLED_TOKENS)
        messages = (*timeline.messages_of(before), *read)
        prompt = prompt_after(before, read, form, template)

        async def sample(seed: int) -> SampledReply:
            conversation = self._conversation(branch, messages, form, seed)
            sampled = await self._sample(
                Request(prompt.tokens, settings.params, conversation), left, template
            )
            message = self.rules.parse(sampled, settings.params.stop, form)
            limit = self.rules.limit(sampled, len(prompt.tokens), left)
            return SampledReply(message, prompt.given, sampled, prompt.opens, limit)

        digest = timeline.digest(prompt.tokens)
        return await self._placed(branch, before, read, settings, digest, sample)

    async def _placed(
        self,
        branch: EpisodeBranch,
        before: Reply | None,
        read: tuple[Message | Observation, ...],
        settings: ReplySettings,
        prompt: str,
        sample: Callable[[int], Awaitable[SampledReply]],
    ) -> Reply:
        """Sample a reply. A forked (copied) episode repeats recorded replies up to the fork."""
        form = settings.form
        place = self._place(branch, before, read, form, prompt)
        if branch is self.state.trunk and (origin := self.state.repetition.begins_at()):
            await self.state.begin_at(origin)
        if repeated := self._repeated(branch, before, place, prompt, form):
            return repeated
        state, seed = await self.state.state_key(), hashing.seed(self.state.spec.seed, *place)
        with self.state.timed("generating"):
            drawn = await sample(seed)
        reply = Reply(
            before=before,
            read=read,
            given=drawn.given,
            message=drawn.message,
            sampled=drawn.sampled,
            temperature=settings.temperature,
            state=state,
            prompt=prompt,
            speaker=self.name,
            call=branch.call,
            seed=seed,
            place=place,
            form=form.key,
            opens=drawn.opens,
            limit=drawn.limit,
        )
        # without randomness, the forked episode would get the same reply
        if settings.params.temperature and self._may_fork(branch):
            await self._fork_before(reply)
        self._add(branch, reply)
        return reply

    def _may_fork(self, branch: EpisodeBranch) -> bool:
        """Whether `rollout.branching` may fork (copy) the episode before the new reply."""
        state = self.state
        return (
            self.rules.branching is not None
            and len(state.children) < len(state.spec.spares)
            and branch is state.trunk
            and self.role not in self.rules.frozen
            # an agent may call tools itself before the first reply
            and bool(self._replies and branch.unread_by(self.name))
        )

    async def _fork_before(self, reply: Reply) -> None:
        rule, seed = self.rules.branching, hashing.seed(reply.seed, "fork")
        assert rule is not None
        forks = rule.forks(self._replies[0].entropies, reply.entropies, seed)
        self.state.counts.update({"branching/decisions": 1, "branching/forks": int(forks)})
        if forks:
            await self.state.fork(1, before_reply=True)

    def _require_turn(self, branch: EpisodeBranch) -> None:
        if sum(one.speaker == self.name for one in branch.replies) >= self.rules.max_turns:
            raise EpisodeOver(Ending.MAX_TURNS)

    def _repeated(
        self,
        branch: EpisodeBranch,
        before: Reply | None,
        place: EpisodePlace,
        prompt: str,
        form: Form,
    ) -> Reply | None:
        """Repeat the recorded reply at `place`, or return None if the reply must be sampled."""
        stored = self.state.repetition.reply(place, prompt, form.key)
        if stored is None:
            return None
        # cleared, because the repeated tool results add their rewards again
        reply = replace(stored, before=before, earned=[])
        self._add(branch, reply)
        return reply

    def _add(self, branch: EpisodeBranch, reply: Reply) -> None:
        self.state.repetition.path.replies[reply.place] = reply
        self._replies.append(reply)
        branch.add(reply)

    async def _sample(
        self, request: Request, left: int, template: ChatTemplate
    ) -> tuple[Sampled, ...]:
        tokens, most = len(request.prompt), self.rules.max_model_len
        self._require_room(request.conversation, tokens)
        length = min(request.params.max_tokens, most - tokens, left)
        params = replace(request.params, max_tokens=length)
        return await sample_spans(self.state.session, replace(request, params=params), template)

    def _require_room(self, prompt: Conversation, tokens: int) -> None:
        if tokens >= self.rules.max_model_len:
            raise self.rules.too_long(prompt, tokens, self.name == self.state.main)

    def _tokens_left(self, branch: EpisodeBranch) -> int:
        sampled = sum(len(one.tokens) for one in branch.replies)
        return max(0, self.rules.max_sampled_tokens - sampled)

    def is_opening(self, messages: tuple[Message | Observation, ...]) -> bool:
        """Whether `messages` begin the episode. Only the subclass `Episode` may return True."""
        return False

    def _place(
        self,
        branch: EpisodeBranch,
        before: Reply | None,
        read: tuple[Message | Observation, ...],
        form: Form,
        prompt: str,
    ) -> EpisodePlace:
        """Return the key of a reply in the episode. The key does not depend on timing.

        In the episode's first conversation, the key is the reply's index (for exceptions, see
        `Reply.alone`). Other keys have the speaker, the prompt's digest, the count of earlier
        replies to this prompt, and the index of the `gather` branch.
        """
        repeats = branch.samples_before(self.name, prompt)
        own = form.tools == self.rules.schemas
        alone = (own and self.is_opening(read)) if before is None else before.alone
        place = (len(timeline.path(before)),)
        if alone and not (repeats or branch.number or place in self.state.repetition.path.replies):
            return place
        return (self.name, prompt, repeats, *branch.number)

    def _conversation(
        self,
        branch: EpisodeBranch,
        messages: tuple[Message | Observation, ...],
        form: Form,
        seed: int,
    ) -> Conversation:
        return Conversation(
            problem=self.state.spec.problem,
            chain=self.state.spec.chain,
            turn=branch.call,
            messages=messages,
            tools=form.tools,
            seed=seed,
            speaker=self.name,
        )


def _within_limits(reply: Reply) -> Message:
    """Return a reply's message. Raises EpisodeOver if a token limit of the episode is reached."""
    if reply.limit is not None:
        raise EpisodeOver(reply.limit)
    return reply.message
