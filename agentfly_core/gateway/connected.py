"""Start programs in the sandbox or outside of it, and connect them to the gateway."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from agentfly_core.gateway.process import ProgramCommand, RunningProgram
from agentfly_core.gateway.server import served, served_alone
from agentfly_core.gateway.session import GatewaySession
from agentfly_core.sandbox import confined

API_KEY = "agentfly"


@asynccontextmanager
async def outside(
    command: ProgramCommand, session: GatewaySession, line: str
) -> AsyncIterator[RunningProgram]:
    """Start a program outside of the sandbox with `line` as its input, and kill it at the end.

    Raises OSError.
    """
    async with served(session) as url, command.started(line, _variables(url)) as program:
        yield program


@asynccontextmanager
async def in_sandbox(
    command: ProgramCommand, files: Sequence[str], session: GatewaySession, line: str
) -> AsyncIterator[RunningProgram]:
    """Start a program `[python, ...]` in the sandbox, with these files and `line` as its input.

    It is killed at the end of the block. Raises Unavailable without a sandbox, and OSError or
    CalledProcessError if the interpreter is missing.
    """
    env = confined.FOLDERS | _variables(f"{confined.ADDRESS}/{session.token}/v1")
    ours, theirs = socket.socketpair()
    async with AsyncExitStack() as stack:
        stack.enter_context(ours)
        with theirs:
            words = await asyncio.to_thread(confined.words, command.words, files, theirs)
            inside = replace(command, words=words, descriptors=(theirs.fileno(),))
            program = await stack.enter_async_context(inside.started(line, env))
        stack.callback(session.close)
        listener = await confined.listener(ours)
        await stack.enter_async_context(served_alone(session, session.token, listener))
        # killed before its server ends, because it must not receive replies after a deadline
        stack.callback(program.kill)
        yield program


async def isolates() -> bool:
    """Whether programs run in the sandbox. With AGENTFLY_SANDBOX=unsafe they run outside of it.

    Raises Unavailable without a sandbox.
    """
    return await asyncio.to_thread(confined.isolates)


def _variables(url: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": API_KEY}
