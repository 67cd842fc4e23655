"""The modes of a play: episodes as in training, single episodes that are shown live, or a chat."""

import json
import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from agentfly_core.authoring.time_limits import in_thread
from agentfly_core.inference.sampler import Request, Sampler, SamplerSession
from agentfly_core.records.run_record import ModeName
from agentfly_core.records.trajectory import (
    BadCall,
    Ending,
    Message,
    Observation,
    Sampled,
    Trajectory,
)
from agentfly_core.rollout.episode import Episode, RolloutSpec
from agentfly_core.rollout.frozen import Cast
from agentfly_core.rollout.rules import EpisodeOver
from agentfly_core.runs.episodes import Decode, Piece, answered_last, sampled_piece

# a chat with a person has more turns than a training episode, and takes more time
MAX_TURNS = 100
LONGEST = 24 * 3600.0
Show = Callable[[Piece | str], None]
"""A function that shows a piece of an episode's text, or a line about the episode."""


class Mode:
    """A mode of playing episodes, such as a live view or a chat. Subclasses override its hooks.

    Hooks can replace the sampler and the rules of the episodes (RolloutSpec), and handle each
    finished episode. The hooks of this class change nothing. `name` is recorded in play.json.
    """

    name: ModeName = "experiment"

    def sampler(self, sampler: Sampler, decode: Decode) -> Sampler:
        """Return the sampler for the episodes.

        This is `sampler` itself. A subclass may return another sampler instead, for example one
        that also shows the replies. `decode` converts tokens to text, including special tokens.
        """
        return sampler

    def rules(self, spec: RolloutSpec) -> RolloutSpec:
        """Return the spec for the episodes. This class returns `spec` unchanged.

        Subclasses may return a changed copy, for example with another agent and other limits.
        """
        return spec

    def ended(self, trajectory: Trajectory) -> None:
        """Do nothing. Subclasses can show the episode, which has just ended."""


@dataclass(frozen=True)
class WrappedSampler:
    """A sampler that calls `wrap` on each session (SamplerSession) of the sampler `inner`.

    Example: `WrappedSampler(sampler, lambda session: Timing([session], {}, {}, log))`. In this
    example, `Timing` is a SamplerSession that forwards all calls to `session`.
    """

    inner: Sampler
    wrap: Callable[[SamplerSession], SamplerSession]

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load a policy into the sampler `inner`."""
        self.inner.load(policy, version, base)

    def rest(self) -> None:
        """Release the GPU memory of the sampler `inner`."""
        self.inner.rest()

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        """Open a session of the sampler `inner` for a batch of episodes (a shard).

        Yields the wrapped session, i.e. the result of `wrap`.
        """
        async with self.inner.shard(episodes) as session:
            yield self.wrap(session)


class Live(Mode):
    """Shows each turn while it is played. Episodes must be played one at a time."""

    name: ModeName = "live"

    def __init__(self, show: Show) -> None:
        self._show = show

    def sampler(self, sampler: Sampler, decode: Decode) -> Sampler:
        """Return a sampler that shows the new text of each prompt, and each reply."""
        return WrappedSampler(sampler, lambda one: _Session([one], {}, {}, decode, self._show))

    def ended(self, trajectory: Trajectory) -> None:
        """Show the tool results after the last reply, and the ending of the episode."""
        for piece in answered_last(trajectory):
            self._show(piece)
        why = f": {trajectory.error}" if trajectory.error else ""
        self._show(f"ended {trajectory.ending.value}{why}\n")


@dataclass(eq=False)
class _Session(Cast):
    """A sampler session that calls `show` with the new text of each prompt and with each reply."""

    decode: Decode
    show: Show
    shown: tuple[int, ...] = field(default=(), init=False)
    """The tokens of the last shown prompt and reply: the next prompt usually begins with them."""

    async def sample(self, request: Request) -> Sampled:
        problem, chain, turn = request.conversation.order
        if turn == 0:
            self.shown = ()
            self.show(f"problem {problem}, chain {chain}")
        prompt, length = tuple(request.prompt), len(self.shown)
        # a prompt of another speaker, or with a changed history, does not continue the shown tokens
        new = prompt[length:] if prompt[:length] == self.shown else prompt
        self.show(Piece("read", self.decode(new)))
        sampled = await super().sample(request)
        self.show(sampled_piece(sampled, self.decode))
        self.shown = (*prompt, *sampled.tokens)
        return sampled


class Chat(Mode):
    """A mode in which a person chats with the policy in an episode.

    A Chat object is also the agent that plays this episode.

    The person's first message is `first`. After each reply without a tool call, `ask` returns the
    person's next message. An empty message ends the chat.

        Chat("What is the capital of Chile?", ask=input, tell=print)

    `tell` is called with a line for each reply, each tool call and each tool answer.
    """

    name: ModeName = "chat"

    def __init__(self, first: str, ask: Callable[[], str], tell: Callable[[str], None]) -> None:
        self._first, self._ask, self._tell = first, ask, tell

    def rules(self, spec: RolloutSpec) -> RolloutSpec:
        """Return a copy of `spec` in which this chat is the agent.

        The limits of an episode become MAX_TURNS turns and LONGEST seconds, because a chat with a
        person takes longer than a training episode.
        """
        tasks = {name: self.rules(task) for name, task in spec.tasks.items()}
        return replace(spec, agent=self, max_turns=MAX_TURNS, deadline=LONGEST, tasks=tasks)

    async def __call__(self, episode: Episode) -> Ending:
        """Chat until the person enters an empty text or a tool ends the episode."""
        # the person's first message replaces the prompt of the problem
        *system, _ = episode.rules.opening(episode.problem)
        seen = [item for item in episode.opening if isinstance(item, Observation)]
        self._heard(seen)
        read: Sequence[Message | Observation] = (*system, Message("user", self._first), *seen)
        while True:
            reply = await episode.reply(*read)
            self._show(reply)
            if reply.calls:
                read = await self._answered(episode, reply)
                continue
            # in a thread, because waiting for input would block the event loop
            typed = await in_thread(self._ask, math.inf, "The chat")
            if not typed.strip():
                return Ending.NO_TOOL_CALLS
            read = (Message("user", typed),)

    def _show(self, reply: Message) -> None:
        if reply.content.strip():
            self._tell(f"policy> {reply.content.strip()}")
        for call in reply.calls:
            if isinstance(call, BadCall):
                self._tell(f"call>   {call.text} (unreadable: {call.fault})")
            else:
                arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
                self._tell(f"call>   {call.name} {arguments}")

    async def _answered(self, episode: Episode, reply: Message) -> Sequence[Observation]:
        try:
            answers: Sequence[Observation] = await episode.call(*reply.calls)
        except EpisodeOver:
            self._heard(episode.closing)
            raise
        self._heard(answers)
        return answers

    def _heard(self, answers: Sequence[Observation]) -> None:
        for answer in answers:
            self._tell(f"{'error' if answer.error else 'tool'}>   {answer.tool}: {answer.content}")
