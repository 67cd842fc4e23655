"""An agent whose episodes misbehave: `Problem("p", "?", {"place": "tool", "deed": "sleeps"})`.

Places are the tools, the environment, the reward and the agent below, deeds the functions in DEEDS.
A problem without a deed plays as usual.
"""

import asyncio
import ctypes
import logging
import os
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import tool
from agentfly_core.records.trajectory import Ending, Message, Problem, ToolCall, Trajectory
from agentfly_core.rollout.episode import Episode

FOREVER = 100_000
FORKS = 50
GIB = 1 << 30
FLOOD = 32 << 20
LATE = "a late result"
LIMIT = 2.0
"""Seconds for a call. A busy machine keeps a program from running for a second."""
WAITING = "waiting"


def sleeps() -> None:
    """Block the thread without the GIL."""
    time.sleep(FOREVER)


def is_late() -> str:
    """Return after the limit of the call."""
    time.sleep(2 * LIMIT)
    return LATE


def matches() -> None:
    """Hold the GIL with a regular expression of exponential cost."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def holds_gil() -> None:
    """Hold the GIL in a C function."""
    ctypes.PyDLL(None).sleep(FOREVER)


def forks() -> None:
    """Start processes that outlive the call."""
    for _ in range(FORKS):
        if os.fork() == 0:
            sleeps()


def exits() -> None:
    """End the process without cleaning up."""
    os._exit(7)


def leaves() -> None:
    """End the program as a script would."""
    sys.exit("enough")


def crashes() -> None:
    """Read from address 0."""
    ctypes.string_at(0)


def is_killed() -> None:
    """End as the kernel ends processes that take too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def stops() -> None:
    """Stop all threads of the process, one after the other, while the call is under way."""
    os.kill(os.getpid(), signal.SIGSTOP)
    sleeps()


def allocates() -> None:
    """Ask for 20 GiB where 1 GiB more is allowed."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (now + GIB, before[1]))
    try:
        bytearray(20 * GIB)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def recurses() -> None:
    """Call itself without an end."""
    recurses()


def floods() -> None:
    """Print a lot."""
    for _ in range(FLOOD >> 10):
        print("x" * 1023)


def leaves_threads() -> None:
    """Start threads that never end; the interpreter waits for the second at its exit."""
    for daemon in (True, False):
        threading.Thread(target=sleeps, daemon=daemon).start()


def calls_back() -> None:
    """Block the event loop outside of the call."""
    asyncio.get_running_loop().call_soon(sleeps)


async def waits() -> None:
    """Wait until cancelled, with a warning."""
    logging.getLogger(__name__).warning(WAITING)
    await asyncio.Event().wait()


async def ignores_cancelling() -> None:
    """Continue when cancelled, with a warning at the start."""
    logging.getLogger(__name__).warning(WAITING)
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


Deed = Callable[[], Awaitable[Any] | Any]
DEEDS: dict[str, Deed] = {
    deed.__name__: deed
    for deed in (
        sleeps,
        is_late,
        matches,
        holds_gil,
        forks,
        exits,
        leaves,
        crashes,
        is_killed,
        stops,
        allocates,
        recurses,
        floods,
        leaves_threads,
        calls_back,
        waits,
        ignores_cancelling,
    )
}


def _deed(problem: Problem, place: str) -> Deed:
    mine = problem.facts.get("place") == place
    return DEEDS[problem.facts["deed"]] if mine else str


async def _do(problem: Problem, place: str) -> str:
    deed = _deed(problem, place)
    result = deed()
    return str(await result if asyncio.iscoroutine(result) else result)


@tool
async def calm(*, problem: Problem) -> str:
    """Answer at once."""
    return f"Seen {problem.id}."


@tool(timeout=LIMIT)
async def bend(*, problem: Problem) -> str:
    """Misbehave on the event loop."""
    return await _do(problem, "bend")


@tool(timeout=LIMIT)
def press(*, problem: Problem) -> str:
    """Misbehave in a thread."""
    return str(_deed(problem, "press")())


class Unruly(Environment):
    """Misbehaves in its methods; while the file `mark` does not exist, in `__init__`, too."""

    max_uses = 1

    def __init__(self, mark: str = "") -> None:
        self.problem = Problem("", "")
        if mark and not Path(mark).exists():
            with suppress(FileNotFoundError):  # no such folder: it misbehaves each time
                Path(mark).touch()
            sleeps()

    async def reset(self, problem: Problem) -> None:
        self.problem = problem
        await _do(problem, "reset")

    async def close(self) -> None:
        await _do(self.problem, "close")


@tool
async def look(*, unruly: Unruly) -> str:
    """Look at the problem of the environment."""
    return f"Seen {unruly.problem.id}."


@reward(timeout=LIMIT)
async def judge(trajectory: Trajectory, unruly: Unruly) -> float:
    """Misbehave in a reward that needs an environment."""
    await _do(unruly.problem, "judge")
    return 1.0


@reward
async def even(trajectory: Trajectory) -> float:
    """Score without an environment."""
    return 0.0


async def agent(episode: Episode) -> Ending:
    """Reply, call a tool, and reply to its answer."""
    await episode.reply(*episode.opening)
    await _do(episode.problem, "agent")
    place = episode.problem.facts.get("place", "")
    name = place if place in ("bend", "press") else "calm"
    answers = await episode.call(ToolCall(name, {}))
    await episode.reply(Message("user", answers[0].content))
    return Ending.NO_TOOL_CALLS
