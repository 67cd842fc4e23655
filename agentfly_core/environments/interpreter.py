"""A Python interpreter of an episode's own, in a sandbox."""

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.records.trajectory import Problem
from agentfly_core.sandbox.guest.protocol import ExecResult, Limits
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.running import Session

LIMITS = Limits()


class Interpreter(Environment):
    """A Python interpreter that keeps its state for one episode; never reused."""

    max_uses: ClassVar[int | None] = 1

    async def reset(self, problem: Problem) -> None:
        """Find the sandbox; raises Unavailable. The interpreter starts with the first call."""
        await self.close()
        self._session = Session(await asyncio.to_thread(chosen), LIMITS)

    async def run(self, code: str, collect: Sequence[str] = ()) -> ExecResult:
        """Run code in the episode's state; `collect` names files to return."""
        return await self._session.run(code, collect)

    @property
    def alive(self) -> bool:
        """Whether the next call continues the last one's state."""
        return self._session.alive

    async def close(self) -> None:
        if hasattr(self, "_session"):
            await self._session.close()
