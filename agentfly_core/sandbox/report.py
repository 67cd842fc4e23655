"""Report of stopped attacks for `agentfly doctor --sandbox`."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentfly_core.sandbox.guest import landlock
from agentfly_core.sandbox.sandbox import Sandbox
from agentfly_core.sandbox.self_test import AttackResult

WHAT_IT_IS = {
    "forkserver": "a warm interpreter, forked for each execution into namespaces of its own",
    "bubblewrap": "bubblewrap, started for each execution",
    "unsafe": "none, since AGENTFLY_SANDBOX says so: code runs as you, "
    "with your files and your network",
}
NOT_STOPPED = (
    "A flaw in the kernel, which the sandbox shares with this machine.",
    "Reading the interpreter, numpy, /usr/bin and /usr/lib, and seeing where they lie.",
    "Measuring time and the processor, and so how busy this machine is.",
    "Using what it may use: 32 executions at their limits take 16 GB and every core.",
    "Lying: an exit code and printed text are the code's own words, and prove nothing.",
)
NO_CGROUP = (
    "Up to 0.05 s of too much memory by many processes together: "
    "there is no control group, they are polled."
)


def described(sandbox: Sandbox) -> str:
    """One line: "forkserver: a warm interpreter, ...; memory by cgroup v1; landlock 7"."""
    version = sandbox.cgroups.version
    memory = "polling, there is no cgroup" if version == "none" else f"cgroup {version}"
    parts = [
        f"{sandbox.backend.name}: {WHAT_IT_IS[sandbox.backend.name]}",
        *(f"{name} is not used: {why}" for name, why in sandbox.refused.items()),
        f"memory by {memory}",
        f"landlock {landlock.version() or 'is missing'}",
        f"Linux {platform.release()}",
    ]
    return "; ".join(parts)


def table(sandbox: Sandbox, outcomes: Sequence[AttackResult]) -> RenderableType:
    """The result of each attack, and the limits of a sandbox."""
    shown = Table("stopped", "attack", "how it ended", show_edge=False)
    for outcome in outcomes:
        mark = Text("yes", "green") if outcome.stopped else Text("NO", "bold red")
        shown.add_row(mark, outcome.name, Text(outcome.detail))
    more = [NO_CGROUP] if sandbox.cgroups.version == "none" else []
    open_ends = "\n".join(f"  - {line}" for line in (*NOT_STOPPED, *more))
    return Group(
        Text(described(sandbox)), "", shown, "", Text(f"What it does not stop:\n{open_ends}")
    )
