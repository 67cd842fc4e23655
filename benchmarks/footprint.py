"""Time, CPU time and peak memory of a command and all its descendants.

    python -m benchmarks.footprint agentfly train quickstart --new
    python -m benchmarks.footprint --repeats 5 agentfly list

CPU time is user plus system time. Memory is the sum of the processes' proportional set sizes
(shared pages count once), sampled every half second. With `--repeats` the command prints medians.
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from statistics import median

import psutil

from agentfly_core.system.supervisor import become_subreaper
from benchmarks import harness

GIB = 2**30


def pss(root: psutil.Process) -> dict[str, float]:
    """Return the memory of a process and its descendants, in GiB by program.

    The memory of a process is its proportional set size.
    """
    sizes: defaultdict[str, float] = defaultdict(float)
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.Error):
            sizes[_name(process)] += process.memory_full_info().pss / GIB
    return dict(sizes)


def _name(process: psutil.Process) -> str:
    # if a program has changed its title, some arguments are empty
    words: list[str] = [word for word in process.cmdline() if word]
    if "-m" in words:
        return words[words.index("-m") + 1]
    scripts = [word for word in words[1:2] if not word.startswith("-")]
    return scripts[0].rpartition("/")[2] if scripts else str(process.name())


@dataclass(frozen=True)
class Footprint:
    """The cost of a command: `Footprint(0, 142.1, 196.4, {"flows": 1.2, "vllm": 2.5})`.

    `status` is the exit status. `seconds` is the elapsed time, and `cpu` the CPU time. `peak` has
    the GiB of memory of each program at the time when their sum was largest.
    """

    status: int
    seconds: float
    cpu: float
    peak: Mapping[str, float]


def footprint(words: Sequence[str]) -> Footprint:
    """Run a command to its end, and return its footprint."""
    before, start = cpu_of_children(), time.monotonic()
    child = subprocess.Popen(words)
    root, peak = psutil.Process(child.pid), dict[str, float]()
    while True:
        try:
            status = child.wait(0.5)
            break
        except subprocess.TimeoutExpired:
            with suppress(psutil.Error):
                peak = max(peak, pss(root), key=lambda sizes: sum(sizes.values()))
    seconds = time.monotonic() - start
    with suppress(ChildProcessError):
        while True:  # orphans are children of this process, because it is a subreaper
            os.wait()
    return Footprint(status, seconds, cpu_of_children() - before, peak)


def cpu_of_children() -> float:
    """Return the CPU seconds of all ended descendants."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> int:
    """Run the command and print its footprint."""
    parser = harness.parser(__doc__, repeats=1)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="the command to run, with its arguments"
    )
    options = parser.parse_args()
    words: list[str] = options.command or parser.error("expected a command to run")
    become_subreaper()
    runs = [footprint(words) for _ in range(options.repeats)]
    seconds, cpu = median(run.seconds for run in runs), median(run.cpu for run in runs)
    peak = max((run.peak for run in runs), key=lambda sizes: sum(sizes.values()))
    print(f"{seconds:.1f} s, {cpu:.2f} CPU seconds, peak {sum(peak.values()):.2f} GiB:")
    for name, size in sorted(peak.items(), key=lambda item: -item[1]):
        print(f"  {size:5.2f} GiB  {name}")
    return max(run.status for run in runs)


if __name__ == "__main__":
    sys.exit(main())
