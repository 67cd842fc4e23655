"""A Python interpreter in a sandbox, one for each episode."""

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
    """A Python interpreter in a sandbox, which keeps variables and files during one episode."""

    max_uses: ClassVar[int | None] = 1

    async def reset(self, problem: Problem) -> None:
        """Close the last interpreter, if any, and choose the kind of sandbox.

        The next call of `run` starts a new interpreter.
        Raises Unavailable if no sandbox is available.
        """
        await self.close()
        self._session = Session(await asyncio.to_thread(chosen), LIMITS)

    async def run(self, code: str, collect: Sequence[str] = ()) -> ExecResult:
        """Run code, which can use the variables and files of earlier calls.

        `collect` contains the names of the files to return.
        """
        return await self._session.run(code, collect)

    @property
    def alive(self) -> bool:
        """Whether the next call of `run` still has the variables and files of earlier calls."""
        return self._session.alive

    async def close(self) -> None:
        if hasattr(self, "_session"):
            await self._session.close()
