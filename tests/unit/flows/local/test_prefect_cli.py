"""The server's automations, whose updates Prefect waited for on its own event loop."""

import asyncio
import sys

import prefect.cli
from prefect.server.events.models import automations

from flows.local.prefect_cli import main, updates


async def test_an_update_waits_for_the_lock_beside_its_server(monkeypatch):
    monkeypatch.setattr(automations, "run_coro_as_sync", None)
    monkeypatch.setattr(prefect.cli, "app", lambda: None)
    monkeypatch.setattr(sys, "argv", ["prefect", "server", "start"])
    main()
    lock, updated = asyncio.Lock(), []

    async def update() -> None:
        async with lock:
            updated.append("automation")

    async with lock:
        automations.run_coro_as_sync(update())
        await asyncio.sleep(0)
        assert (updated, len(updates)) == ([], 1)
    await asyncio.gather(*updates)
    assert (updated, updates) == (["automation"], set())
