"""Prefect's command line, with a fix for a deadlock of the server on SQLite.

Before version 3.8.6, Prefect's server blocks its event loop to wait for a lock, which a task of the
same loop may hold (PrefectHQ/prefect#23055). AgentFly cannot use a newer Prefect, because Prefect
3.8 and vLLM need different versions of fastapi.
"""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

SERVER = ["server", "start"]
updates: set[asyncio.Task[None]] = set()
"""The running tasks of `update_later`. This set keeps the tasks alive, because asyncio itself has
only weak references to tasks.
"""


def update_later(update: Coroutine[Any, Any, None]) -> None:
    """Start the update of the server's automations on the running event loop.

    This function returns at once. Waiting for the update could cause a deadlock.
    """
    task = asyncio.get_running_loop().create_task(update)
    updates.add(task)
    task.add_done_callback(updates.discard)


def main() -> None:
    """Run Prefect's command line with the arguments of this process.

    For the command `server start`, a function of Prefect that may block the server forever is
    replaced by `update_later`.
    """
    if sys.argv[1:3] == SERVER:
        from prefect.server.events.models import automations

        automations.run_coro_as_sync = update_later  # type: ignore
    from prefect.cli import app

    app()


if __name__ == "__main__":
    main()
