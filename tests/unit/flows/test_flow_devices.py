"""Flow runs take turns on a machine without GPUs."""

from contextvars import copy_context
from uuid import UUID, uuid4

import pytest
from prefect.client.schemas import FlowRun
from prefect.context import FlowRunContext

from agentfly_core.config.site import Site
from agentfly_core.system.devices import held, slot
from flows import flow_run
from flows.flow_run import devices


class Waits(Exception):
    """Raised instead of a wait."""


class Log:
    def warning(self, text):
        raise Waits(text)


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A site with one slot, which another run uses. A wait for it in a flow run raises Waits."""
    monkeypatch.setattr(flow_run, "get_run_logger", Log)
    monkeypatch.setattr(flow_run, "logger", Log())
    other, taken = copy_context(), held([slot(1, str(tmp_path))], "the run of another", print)
    other.run(taken.__enter__)
    run = FlowRun(id=uuid4(), flow_id=UUID(int=0))
    with FlowRunContext.model_construct(flow_run=run):
        yield Site(locks=str(tmp_path))
    other.run(taken.__exit__, None, None, None)


def test_a_command_in_a_terminal_waits_for_no_slot(site, monkeypatch):
    monkeypatch.delenv("PREFECT__FLOW_RUN_ID", raising=False)
    with devices(site, [], "the run mine"):
        pass


def test_a_flow_run_of_a_worker_waits_and_names_the_slots_owner(site, monkeypatch):
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", str(uuid4()))
    with pytest.raises(Waits, match="run of another"):
        with devices(site, [], "the run mine"):
            pass
