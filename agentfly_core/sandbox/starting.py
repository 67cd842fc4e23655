"""Starting one process for each execution, for backends that keep none warm."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping, Sequence

PROGRAM = "agentfly_core.sandbox.guest.spawned"


def start(command: Sequence[str], env: Mapping[str, str], descriptors: Sequence[int]) -> None:
    """Start a process that keeps these descriptors, and is reaped when it has ended."""
    process = subprocess.Popen(
        command,
        pass_fds=descriptors,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    threading.Thread(target=process.wait, daemon=True).start()
