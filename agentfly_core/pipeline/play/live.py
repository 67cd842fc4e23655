"""Episodes shown while they are played, one after another, turn by turn."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from agentfly_core.inference.sampler import Request, Sampler
from agentfly_core.pipeline.play.mode import Mode, WrappedSampler, WrappedSession
from agentfly_core.records.run_record import ModeName
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
