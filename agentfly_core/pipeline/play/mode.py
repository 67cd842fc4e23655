"""Play modes: episodes as in training, or one at a time for a person to follow."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agentfly_core.inference.sampler import Request, Sampler, SamplerSession
from agentfly_core.records.run_record import ModeName
from agentfly_core.records.trajectory import Sampled, Trajectory
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.runs.episodes import Decode, Piece, answered_last, sampled_piece

Show = Callable[[Piece | str], None]
"""Shows a stretch of an episode, or a line about it."""


class Mode:
    """Hooks that change the sampler and the rules, and see ended episodes. Here no-ops.

    `name` is recorded in play.json.
    """

    name: ModeName = "experiment"

    def sampler(self, sampler: Sampler, decode: Decode) -> Sampler:
        """The sampler to play with; `decode` gives the text of tokens, special ones shown."""
        return sampler

    def rules(self, spec: RolloutSpec) -> RolloutSpec:
        """The rules to play by."""
        return spec

    def ended(self, trajectory: Trajectory) -> None:
        """Hear of an episode that ended."""


@dataclass
class WrappedSession(SamplerSession):
    """Forwards to another session. Subclasses override `sample`."""

    inner: SamplerSession

    async def sample(self, request: Request) -> Sampled:
        """Sample a reply."""
        return await self.inner.sample(request)

    def open(self) -> None:
        """Open the session for a further branch."""
        self.inner.open()

    def close(self) -> None:
        """Close the session for one branch."""
        self.inner.close()

    def waits_for_all(self, speaker: str) -> bool:
        """Whether a speaker's replies wait for all branches."""
        return self.inner.waits_for_all(speaker)

    def continues(self, speaker: str) -> bool:
        """Whether a speaker's reply may be sampled in two requests."""
        return self.inner.continues(speaker)


@dataclass(frozen=True)
class WrappedSampler:
    """A sampler with wrapped sessions: `WrappedSampler(sampler, partial(Timing, log=[]))`."""

    inner: Sampler
    wrap: Callable[[SamplerSession], SamplerSession]

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Load a policy."""
        self.inner.load(policy, version, base)

    def rest(self) -> None:
        """Release the memory of GPUs."""
        self.inner.rest()

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        """Lend a wrapped session to a shard."""
        async with self.inner.shard(episodes) as session:
            yield self.wrap(session)


class Live(Mode):
    """Shows each turn as it happens; for episodes that are played one at a time."""

    name: ModeName = "live"

    def __init__(self, show: Show) -> None:
        self._show = show

    def sampler(self, sampler: Sampler, decode: Decode) -> Sampler:
        """The sampler with requests and replies shown."""
        return WrappedSampler(sampler, partial(_Session, decode=decode, show=self._show))

    def ended(self, trajectory: Trajectory) -> None:
        """Show the last answers and the ending."""
        for piece in answered_last(trajectory):
            self._show(piece)
        why = f": {trajectory.error}" if trajectory.error else ""
        self._show(f"ended {trajectory.ending.value}{why}\n")


@dataclass
class _Session(WrappedSession):
    """Shows requests and replies."""

    decode: Decode
    show: Show
    shown: tuple[int, ...] = field(default=(), init=False)
    """The tokens of the conversation that was shown last."""

    async def sample(self, request: Request) -> Sampled:
        problem, chain, turn = request.conversation.order
        if turn == 0:
            self.shown = ()
            self.show(f"problem {problem}, chain {chain}")
        prompt, length = tuple(request.prompt), len(self.shown)
        # another speaker or a rewritten history does not continue the shown tokens
        new = prompt[length:] if prompt[:length] == self.shown else prompt
        self.show(Piece("read", self.decode(new)))
        sampled = await self.inner.sample(request)
        self.show(sampled_piece(sampled, self.decode))
        self.shown = (*prompt, *sampled.tokens)
        return sampled
