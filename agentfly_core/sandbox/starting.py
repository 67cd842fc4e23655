"""Starting one process for each execution, for backends that keep none warm."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence

PROGRAM = "agentfly_core.sandbox.spawned"


def start(
    command: Sequence[str], env: Mapping[str, str], descriptors: Sequence[int], ended: Callable[[], None]
) -> None:
    """Start a process that keeps these descriptors; when it has ended, and is reaped, `ended` is called in a thread."""
    process = subprocess.Popen(
        command,
        pass_fds=descriptors,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def wait() -> None:
        process.wait()
        ended()

    threading.Thread(target=wait, daemon=True).start()
