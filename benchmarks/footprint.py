"""How long a command takes and how much memory it and all its descendants use at most.

    python -m benchmarks.footprint agentfly train quickstart --new

Memory is the sum of the processes' proportional set sizes (shared pages counted once), sampled
every half second.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections import defaultdict
from contextlib import suppress

import psutil

from benchmarks import harness

GIB = 2**30


def pss(root: psutil.Process) -> dict[str, float]:
    """The proportional set sizes (GiB) of a process and its descendants, by program."""
    found: defaultdict[str, float] = defaultdict(float)
    for process in [root, *root.children(recursive=True)]:
        with suppress(psutil.Error):
            found[_name(process)] += process.memory_full_info().pss / GIB
    return dict(found)


def _name(process: psutil.Process) -> str:
    # A program that sets its title leaves empty words behind.
    words: list[str] = [word for word in process.cmdline() if word]
    if "-m" in words:
        return words[words.index("-m") + 1]
    scripts = [word for word in words[1:2] if not word.startswith("-")]
    return scripts[0].rpartition("/")[2] if scripts else str(process.name())


def main() -> int:
    """Run the command to its end and print what was seen."""
    parser = harness.parser(__doc__)
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="the command to run, with its arguments"
    )
    words: list[str] = parser.parse_args().command or parser.error("expected a command to run")
    start = time.monotonic()
    child = subprocess.Popen(words)
    root, peak, total = psutil.Process(child.pid), {}, 0.0
    while child.poll() is None:
        with suppress(psutil.Error):
            now = pss(root)
            if sum(now.values()) > total:
                peak, total = now, sum(now.values())
        time.sleep(0.5)
    print(f"{time.monotonic() - start:.0f} s, peak {total:.2f} GiB:")
    for name, size in sorted(peak.items(), key=lambda item: -item[1]):
        print(f"  {size:5.2f} GiB  {name}")
    return child.returncode


if __name__ == "__main__":
    sys.exit(main())
