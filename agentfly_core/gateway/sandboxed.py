"""Start programs in the sandbox, and connect them to the gateway."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from agentfly_core.gateway.process import ProgramCommand, RunningProgram, client_variables
from agentfly_core.gateway.server import served_alone
from agentfly_core.gateway.session import GatewaySession
from agentfly_core.sandbox import confined


@asynccontextmanager
async def in_sandbox(
    command: ProgramCommand, files: Sequence[str], session: GatewaySession, line: str
) -> AsyncIterator[RunningProgram]:
    """Start a program `[python, ...]` that sees these files, with a line of input.

    It is killed at the end. Raises Unavailable, and OSError or CalledProcessError without such an
    interpreter.
    """
    env = confined.FOLDERS | client_variables(f"{confined.ADDRESS}/{session.token}/v1")
    ours, theirs = socket.socketpair()
    async with AsyncExitStack() as stack:
        stack.enter_context(ours)
        with theirs:
            words = await asyncio.to_thread(confined.words, command.words, files, theirs)
            inside = replace(command, words=words, descriptors=(theirs.fileno(),))
            program = await stack.enter_async_context(inside.started(line, env))
        await stack.enter_async_context(served_alone(session, await confined.listener(ours)))
        # before its server ends: a reply that comes after a deadline is not received
        stack.callback(program.kill)
        yield program
