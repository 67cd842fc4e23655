"""Episodes shown while they are played, one after another, turn by turn."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from agentfly_core.inference.sampler import Request, Sampler, SamplerSession
from agentfly_core.pipeline.play.mode import Mode
from agentfly_core.records.play_record import ModeName
from agentfly_core.records.trajectory import Sampled, Trajectory
from agentfly_core.runs.episodes import Decode, Piece, answered_last, sampled_piece

Show = Callable[[Piece | str], None]
"""Shows a stretch of an episode, or a line about it."""


class Live(Mode):
    """Shows each turn as it happens; for episodes that are played one at a time."""

    name: ModeName = "live"

    def __init__(self, show: Show) -> None:
        self._show = show

    def sampler(self, sampler: Sampler, decode: Decode) -> Sampler:
        """The sampler, whose requests and replies are shown."""
        return _Shown(sampler, decode, self._show)

    def ended(self, trajectory: Trajectory) -> None:
        """Show what was answered last and how it ended."""
        for piece in answered_last(trajectory):
            self._show(piece)
        why = f": {trajectory.error}" if trajectory.error else ""
        self._show(f"ended {trajectory.ending.value}{why}\n")


@dataclass(frozen=True)
class _Shown:
    """A sampler whose sessions show what they do."""

    inner: Sampler
    decode: Decode
    show: Show

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        self.inner.load(policy, version, base)

    def rest(self) -> None:
        self.inner.rest()

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[SamplerSession]:
        async with self.inner.shard(episodes) as session:
            yield _Session(session, self.decode, self.show)


@dataclass
class _Session:
    inner: SamplerSession
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
        new = prompt[length:] if prompt[:length] == self.shown else prompt
        self.show(Piece("read", self.decode(new)))
        sampled = await self.inner.sample(request)
        self.show(sampled_piece(sampled, self.decode))
        self.shown = (*prompt, *sampled.tokens)
        return sampled

    def open(self) -> None:
        self.inner.open()

    def close(self) -> None:
        self.inner.close()

    def waits_for_all(self, speaker: str) -> bool:
        return self.inner.waits_for_all(speaker)
