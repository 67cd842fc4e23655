"""Start programs, and connect them to the gateway: outside, or in the sandbox."""

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
    """Start a program with a line of input, and kill it at the end; raises OSError."""
    async with served(session) as url, command.started(line, _variables(url)) as program:
        yield program


@asynccontextmanager
async def in_sandbox(
    command: ProgramCommand, files: Sequence[str], session: GatewaySession, line: str
) -> AsyncIterator[RunningProgram]:
    """Start a program `[python, ...]` that sees these files, with a line of input.

    It is killed at the end. Raises Unavailable, and OSError or CalledProcessError without such an
    interpreter.
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
        # before its server ends: a reply that comes after a deadline is not received
        stack.callback(program.kill)
        yield program


async def isolates() -> bool:
    """Whether programs can run in the sandbox; with AGENTFLY_SANDBOX=unsafe they run outside.

    Raises Unavailable.
    """
    return await asyncio.to_thread(confined.isolates)


def _variables(url: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": API_KEY}
