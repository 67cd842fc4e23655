"""Deadlines of programs that pass soon, but on no machine before the program has asked."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from agentfly_core.gateway.session import GatewaySession
from tests.support.waiting import until


def end_after_first_reply(monkeypatch: pytest.MonkeyPatch, problem_id: str) -> None:
    """Let the deadline of a problem's programs pass a second after their first reply."""
    result = GatewaySession.result

    async def soon(session: GatewaySession, work: Coroutine[Any, Any, Any], seconds: float) -> Any:
        if session.episode.problem.id != problem_id:
            return await result(session, work, seconds)
        await asyncio.to_thread(until, lambda: session.last)
        return await result(session, work, 1.0)

    monkeypatch.setattr(GatewaySession, "result", soon)
