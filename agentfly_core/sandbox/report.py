"""The report of `agentfly doctor --sandbox`.

It describes the sandbox, and the results of test attacks on the sandbox.
"""

import platform
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentfly_core.sandbox.guest import landlock
from agentfly_core.sandbox.sandbox import Sandbox
from agentfly_core.sandbox.self_test import AttackResult


def described(sandbox: Sandbox) -> str:
    """Describe a sandbox: "forkserver; memory by cgroup v1; landlock 7; Linux 6.8"."""
    version = sandbox.cgroups.version
    parts = [
        f"{sandbox.backend.name}{' (no isolation)' if sandbox.backend.name == 'unsafe' else ''}",
        *(f"{name} is not used: {why}" for name, why in sandbox.refused.items()),
        f"memory by {'polling' if version == 'none' else f'cgroup {version}'}",
        f"landlock {landlock.version() or 'is missing'}",
        f"Linux {platform.release()}",
    ]
    return "; ".join(parts)


def table(sandbox: Sandbox, outcomes: Sequence[AttackResult]) -> RenderableType:
    """Return a table with the result of each attack."""
    shown = Table("stopped", "attack", "how it ended", show_edge=False)
    for outcome in outcomes:
        mark = Text("yes", "green") if outcome.stopped else Text("NO", "bold red")
        shown.add_row(mark, outcome.name, Text(outcome.detail))
    return Group(Text(described(sandbox)), "", shown)
