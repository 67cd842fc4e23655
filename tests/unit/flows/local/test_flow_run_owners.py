"""Flow runs of dead processes."""

from __future__ import annotations

from contextlib import nullcontext
from uuid import UUID, uuid4

import pytest
from prefect.client import orchestration
from prefect.client.schemas import FlowRun
from prefect.states import Running, State

from flows.local.flow_run_owners import crash_abandoned


class Api:
    """A Prefect server with two active flow runs on each page."""

    def __init__(self) -> None:
        self.running = [FlowRun(id=uuid4(), flow_id=UUID(int=0), state=Running()) for _ in range(5)]

    def read_flow_runs(self, *, flow_run_filter: object, offset: int = 0) -> list[FlowRun]:
        """Return one page of the active flow runs."""
        return self.running[offset : offset + 2]

    def set_flow_run_state(self, chosen: UUID, state: State[None], force: bool) -> None:
        """Move a flow run to another state, so no page contains it."""
        self.running = [run for run in self.running if run.id != chosen]


def test_flow_runs_of_all_pages_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()
    ids = [str(run.id) for run in api.running]
    monkeypatch.setattr(orchestration, "get_client", lambda sync_client: nullcontext(api))
    assert crash_abandoned(ids) == ids
    assert api.running == []
