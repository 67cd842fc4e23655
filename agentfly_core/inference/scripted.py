"""A sampler with scripted replies, for demonstrations, examples and tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from agentfly_core.inference.sampler import Request
from agentfly_core.records.trajectory import Sampled


class Scripted:
    """Replies with `script(problem id, chain, turn)`, encoded by `encode`, ended by `stop_token`.

        Scripted(
            encode,
            stop_token=2,
            script=lambda problem, chain, turn: ("<call 41+58>", "99")[turn],
        )

    Every log-probability is 0.0: it could say nothing else. The policy version is -1 until a policy
    is loaded. A reply that is longer than the request allows is cut, as a model's would be.
    """

    def __init__(
        self,
        encode: Callable[[str], Sequence[int]],
        stop_token: int,
        script: Callable[[str, int, int], str],
    ) -> None:
        self._encode, self._stop_token, self._script = encode, stop_token, script
        self._version = -1

    def load(self, policy: Path, version: int, base: Path | None = None) -> None:
        """Label what follows with `version`."""
        self._version = version

    @asynccontextmanager
    async def shard(self, episodes: int) -> AsyncIterator[Scripted]:
        """Lend it to any number of episodes."""
        yield self

    def rest(self) -> None:
        """It uses no GPU."""

    async def sample(self, request: Request) -> Sampled:
        """The scripted reply of this problem, chain and turn."""
        tokens = (*self._encode(self._script(*request.order)), self._stop_token)
        cut = tokens[: request.params.max_tokens]
        return Sampled(cut, (0.0,) * len(cut), self._version, "stop" if cut == tokens else "length")

    def close(self) -> None:
        """Do nothing: replies are not batched."""
