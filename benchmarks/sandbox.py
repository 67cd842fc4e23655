"""What an execution in the sandbox costs, beside a plain subprocess, and what a thousand of them leave behind.

    .venv/bin/python benchmarks/sandbox.py [--repeats 50] [--executions 1000] [--at-once 32]

The ways take turns, and the medians of all repeats are compared. Goals: 15 ms for `print(1)`, 25 ms with numpy.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from agentfly_core.sandbox.backends import Bubblewrap, ForkServer
from agentfly_core.sandbox.cgroups import PREFIX, Cgroups
from agentfly_core.sandbox.guest.protocol import ExecRequest, Status
from agentfly_core.sandbox.sandbox import Sandbox

PROGRAMS = {"print(1)": "print(1)", "with numpy": "import numpy\nprint(numpy.arange(10).sum())"}
GOALS_MS = {"print(1)": 15, "with numpy": 25}


async def plain(code: str) -> None:
    """A new interpreter, nothing around it."""
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def sandboxes() -> dict[str, Sandbox]:
    """The sandboxes that this machine may have."""
    found = {"fork-server": Sandbox(ForkServer(), Cgroups.found())}
    return found | ({"bubblewrap": Sandbox(Bubblewrap(), Cgroups.found())} if shutil.which("bwrap") else {})


async def boxed(sandbox: Sandbox, code: str) -> None:
    """An execution in a sandbox."""
    result = await sandbox.execute(ExecRequest(code.encode()))
    assert result.status is Status.OK, result


async def times(repeats: int) -> Table:
    """Milliseconds an execution, by way and program."""
    table = Table("median of an execution, ms", *PROGRAMS, show_edge=False)
    taken: dict[tuple[str, str], list[float]] = {}
    found = sandboxes()
    ways: dict[str, Callable[[str], Awaitable[None]]] = {"plain subprocess": plain}
    ways |= {name: partial(boxed, sandbox) for name, sandbox in found.items()}
    for _ in range(repeats + 1):
        for program, code in PROGRAMS.items():
            for name, run in ways.items():
                start = time.perf_counter()
                await run(code)
                taken.setdefault((name, program), []).append(1000 * (time.perf_counter() - start))
    for sandbox in found.values():
        sandbox.close()
    for name in ways:
        table.add_row(name, *(f"{statistics.median(taken[name, program][1:]):.1f}" for program in PROGRAMS))
    table.add_row("goal", *(f"{goal}" for goal in GOALS_MS.values()))
    return table


def left() -> dict[str, int]:
    """What there is of what executions use."""
    groups = [folder for parent in Cgroups.found().parents for folder in parent.glob(f"{PREFIX}*")]
    folders = [path for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith(PREFIX)]
    return {
        "processes": len(psutil.Process().children(recursive=True)),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "directories": len(folders),
        "control groups": len(groups),
        "descriptors": psutil.Process().num_fds(),
    }


async def sustained(executions: int, at_once: int) -> Table:
    """Many executions, some at a time: what there was before and is after."""
    sandbox, room = Sandbox(ForkServer(), Cgroups.found()), asyncio.Semaphore(at_once)

    async def one(number: int) -> bool:
        async with room:
            result = await sandbox.execute(ExecRequest(b"print(%d)" % number))
            return result.stdout == f"{number}\n"

    await one(0)
    await asyncio.sleep(1)
    before, start = left(), time.perf_counter()
    right = sum(await asyncio.gather(*map(one, range(executions))))
    seconds = time.perf_counter() - start
    await asyncio.sleep(1)
    after = left()
    sandbox.close()
    closed = left()
    title = f"{right} of {executions} right, {at_once} at once, {executions / seconds:.0f} a second"
    table = Table("left over", "before", "after", "closed", title=title, show_edge=False)
    for name in before:
        table.add_row(name, *(str(found[name]) for found in (before, after, closed)))
    return table


def main() -> None:
    """Measure and print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--executions", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=32)
    options = parser.parse_args()
    Console().print(asyncio.run(times(options.repeats)))
    Console().print(asyncio.run(sustained(options.executions, options.at_once)))


if __name__ == "__main__":
    main()
