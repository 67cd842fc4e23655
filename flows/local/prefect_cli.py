"""Prefect's command line, with a fix for a deadlock of the server on SQLite.

Before 3.8.6, Prefect blocks its event loop until it gets the lock of the automations, which a task
of the same loop may hold (PrefectHQ/prefect#23055). A newer Prefect cannot be used, because vLLM
needs another version of fastapi than Prefect 3.8.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

SERVER = ["server", "start"]
updates: set[asyncio.Task[None]] = set()
"""The running updates; asyncio itself keeps no reference to a task."""


def update_later(update: Coroutine[Any, Any, None]) -> None:
    """Start the update of the server's automations on the running loop."""
    task = asyncio.get_running_loop().create_task(update)
    updates.add(task)
    task.add_done_callback(updates.discard)


def main() -> None:
    """Run `prefect WORDS...`."""
    if sys.argv[1:3] == SERVER:
        from prefect.server.events.models import automations

        automations.run_coro_as_sync = update_later  # type: ignore
    from prefect.cli import app

    app()


if __name__ == "__main__":
    main()
