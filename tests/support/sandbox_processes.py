"""Processes and control groups of this machine's sandbox."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from agentfly_core.sandbox.attacks import INSIDE, NAMESPACES
from agentfly_core.sandbox.backends import ForkServer
from agentfly_core.sandbox.cgroups import PREFIX
from agentfly_core.sandbox.preflight import chosen
from tests.support.waiting import LIMIT

IDLE = 4  # a server, its first process, and two executions that wait for their order
GUARD = INSIDE.format(outside={kind: os.readlink(f"/proc/self/ns/{kind}") for kind in NAMESPACES})


def groups(owner: int | None = None) -> list[Path]:
    """The control groups of a process's executions, this one's without another."""
    marked = f"{PREFIX}*-{owner or os.getpid()}-*"
    return [folder for parent in chosen().cgroups.parents for folder in parent.glob(marked)]


def processes() -> list[psutil.Process]:
    """The processes of this machine's sandbox; skips where none of them is warm."""
    if not isinstance(backend := chosen().backend, ForkServer):
        pytest.skip(f"{backend.name} keeps no process")
    server = backend._process
    return (
        [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
        if server
        else []
    )


def children() -> int:
    """How many processes this machine's sandbox has."""
    return len(processes())


async def until(condition: Callable[[], bool]) -> None:
    """Poll until the condition holds; the event loop gets no event for it."""
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110 - the loop gets no event at its end
            await asyncio.sleep(0.01)
