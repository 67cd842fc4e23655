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
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from agentfly_core.sandbox.bubblewrap import Bubblewrap
from agentfly_core.sandbox.cgroups import PREFIX, Cgroups
from agentfly_core.sandbox.forkserver import ForkServer
from agentfly_core.sandbox.limits import Limits
from agentfly_core.sandbox.preflight import Sandbox
from agentfly_core.sandbox.result import Status

PROGRAMS = {"print(1)": "print(1)", "with numpy": "import numpy\nprint(numpy.arange(10).sum())"}
GOALS_MS = {"print(1)": 15, "with numpy": 25}


async def plain(code: str) -> None:
    """A new interpreter, nothing around it."""
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def ways() -> dict[str, Callable[[str], Awaitable[None]]]:
    """The ways of running code that this machine has."""
    backends = {"fork-server": ForkServer(), **({"bubblewrap": Bubblewrap()} if shutil.which("bwrap") else {})}
    cgroups = Cgroups.found()

    def way(sandbox: Sandbox) -> Callable[[str], Awaitable[None]]:
        async def run(code: str) -> None:
            result = await sandbox.run(code, Limits())
            assert result.status is Status.OK, result

        return run

    return {name: way(Sandbox(backend, cgroups)) for name, backend in backends.items()} | {"plain subprocess": plain}


async def times(repeats: int) -> Table:
    """Milliseconds an execution, by way and program."""
    table = Table("median of an execution, ms", *PROGRAMS, show_edge=False)
    taken: dict[tuple[str, str], list[float]] = {}
    found = ways()
    for _ in range(repeats + 1):
        for name, run in found.items():
            for program, code in PROGRAMS.items():
                start = time.perf_counter()
                await run(code)
                taken.setdefault((name, program), []).append(1000 * (time.perf_counter() - start))
    for name in found:
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
            result = await sandbox.run(f"print({number})", Limits())
            return result.stdout == f"{number}\n"

    await one(0)
    await asyncio.sleep(1)
    before, start = left(), time.perf_counter()
    right = sum(await asyncio.gather(*map(one, range(executions))))
    seconds = time.perf_counter() - start
    await asyncio.sleep(1)
    after = left()
    sandbox.backend.close()
    title = f"{right} of {executions} right, {at_once} at once, {executions / seconds:.0f} a second"
    table = Table("left over", "before", "after", title=title, show_edge=False)
    for name in before:
        table.add_row(name, str(before[name]), str(after[name]))
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
