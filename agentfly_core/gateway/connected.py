"""Start programs, in the sandbox or outside of it, and connect them to an episode's HTTP server."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from agentfly_core.gateway.process import ProgramCommand, RunningProgram
from agentfly_core.gateway.server import served
from agentfly_core.gateway.session import GatewaySession
from agentfly_core.sandbox import confined

API_KEY = "agentfly"


@asynccontextmanager
async def outside(
    command: ProgramCommand, session: GatewaySession, line: str
) -> AsyncIterator[RunningProgram]:
    """Run a program outside of the sandbox. The program is killed at the end of the `with` block.

    `line` is the program's input. Raises OSError if the program cannot be started.
    """
    async with served(session) as url, command.started(line, _variables(url)) as program:
        yield program


@asynccontextmanager
async def in_sandbox(
    command: ProgramCommand, files: Sequence[str], session: GatewaySession, line: str
) -> AsyncIterator[RunningProgram]:
    """Run a Python program in the sandbox. The program is killed at the end of the `with` block.

    The first word of `command` is the Python interpreter. `files` are made available in the
    sandbox. `line` is the program's input. Raises Unavailable if this machine cannot run the
    sandbox. Raises OSError or CalledProcessError if the interpreter is missing.
    """
    env = confined.FOLDERS | _variables(f"{confined.ADDRESS}/{session.token}/v1")
    ours, theirs = socket.socketpair()
    async with AsyncExitStack() as stack:
        stack.enter_context(ours)
        with theirs:
            words = await asyncio.to_thread(confined.words, command.words, files, theirs)
            inside = replace(command, words=words, descriptors=(theirs.fileno(),))
            program = await stack.enter_async_context(inside.started(line, env))
        await stack.enter_async_context(served(session, await confined.listener(ours)))
        # killed before its server ends, because it must not receive replies after the deadline
        stack.callback(program.kill)
        yield program


async def isolates() -> bool:
    """Whether programs run in the sandbox. With AGENTFLY_SANDBOX=unsafe they run outside of it.

    Raises Unavailable if no backend of the sandbox works, or if the backend is bubblewrap, which
    cannot run an agent's program.
    """
    return await asyncio.to_thread(confined.isolates)


def _variables(url: str) -> dict[str, str]:
    return {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": API_KEY}
