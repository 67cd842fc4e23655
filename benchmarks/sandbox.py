"""Time of an execution in the sandbox and in a plain subprocess; leftovers of 1,000 executions.

    python -m benchmarks.sandbox [--repeats 50] [--executions 1000] [--at-once 32]

Goals: 15 ms for `print(1)`, 25 ms with numpy.
"""

import asyncio
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import psutil

from agentfly_core.sandbox.backends import Bubblewrap, ForkServer
from agentfly_core.sandbox.cgroups import PREFIX, Cgroups
from agentfly_core.sandbox.guest.protocol import ExecRequest, Status
from agentfly_core.sandbox.sandbox import Sandbox
from benchmarks import harness

PROGRAMS = {"print(1)": "print(1)", "with numpy": "import numpy\nprint(numpy.arange(10).sum())"}
GOALS_MS = {"print(1)": 15, "with numpy": 25}


async def plain(code: str) -> None:
    """Run code in a new interpreter without a sandbox."""
    await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL
    )


def sandboxes() -> dict[str, Sandbox]:
    """Return the sandboxes that can run on this machine, by name."""
    boxes = {"fork-server": Sandbox(ForkServer(), Cgroups.detect())}
    return boxes | (
        {"bubblewrap": Sandbox(Bubblewrap(), Cgroups.detect())} if shutil.which("bwrap") else {}
    )


async def boxed(sandbox: Sandbox, code: str) -> None:
    """Run code in a sandbox, and check that it succeeds."""
    result = await sandbox.execute(ExecRequest(code.encode()))
    assert result.status is Status.OK, result


async def milliseconds(run: Callable[[str], Awaitable[None]], code: str) -> float:
    """Return the milliseconds of one execution."""
    start = time.perf_counter()
    await run(code)
    return 1000 * (time.perf_counter() - start)


def times(repeats: int) -> None:
    """Print a table of the median milliseconds of an execution.

    It has a row for each way to execute code, and a column for each program.
    """
    boxes = sandboxes()
    ways: dict[str, Callable[[str], Awaitable[None]]] = {"plain subprocess": plain}
    ways |= {name: partial(boxed, sandbox) for name, sandbox in boxes.items()}
    with asyncio.Runner() as runner:

        def once(way: str, program: str) -> float:
            return runner.run(milliseconds(ways[way], PROGRAMS[program]))

        pairs = {
            (way, program): partial(once, way, program) for program in PROGRAMS for way in ways
        }
        taken = harness.medians(harness.in_turns(pairs, repeats))
    for sandbox in boxes.values():
        sandbox.close()
    rows = [[way, *(f"{taken[way, program]:.1f}" for program in PROGRAMS)] for way in ways]
    rows.append(["goal", *(str(goal) for goal in GOALS_MS.values())])
    harness.show(["median of an execution, ms", *PROGRAMS], rows)


def left() -> dict[str, int]:
    """Count the processes, mounts, folders, cgroups and descriptors that executions could leave."""
    groups = [folder for parent in Cgroups.detect().parents for folder in parent.glob(f"{PREFIX}*")]
    folders = [
        path for path in Path(tempfile.gettempdir()).iterdir() if path.name.startswith(PREFIX)
    ]
    return {
        "processes": len(psutil.Process().children(recursive=True)),
        "mounts": len(Path("/proc/self/mountinfo").read_text().splitlines()),
        "directories": len(folders),
        "control groups": len(groups),
        "descriptors": psutil.Process().num_fds(),
    }


async def sustained(executions: int, at_once: int) -> None:
    """Print the counts of `left` before and after many executions.

    `at_once` executions run at the same time.
    """
    sandbox, room = Sandbox(ForkServer(), Cgroups.detect()), asyncio.Semaphore(at_once)

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
    rows = [[name, *(str(times[name]) for times in (before, after, closed))] for name in before]
    harness.show(["left over", "before", "after", "closed"], rows, title)


def main() -> None:
    """Measure and print both tables."""
    options = harness.parser(__doc__, repeats=50, executions=1000, at_once=32).parse_args()
    times(options.repeats)
    asyncio.run(sustained(options.executions, options.at_once))


if __name__ == "__main__":
    main()
