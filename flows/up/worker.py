"""The processes of flow runs that the worker of `agentfly up` has started."""

from __future__ import annotations

from contextlib import suppress

import psutil

from agentfly_core.system.service import Service
from agentfly_core.system.supervisor import ChildState

GRACE = 120.0
"""Seconds that a flow run may take to end: what it is writing is written."""
MARK = "PREFECT__FLOW_RUN_ID"


def flow_runs(worker: Service) -> list[psutil.Process]:
    """The processes in which the worker's flow runs are at work, or wait."""
    processes = []
    state = ChildState.read(worker.address)
    with suppress(psutil.NoSuchProcess):
        for program in psutil.Process(state.keeper).children() if state else ():
            for child in program.children():
                with suppress(psutil.Error):
                    if MARK in child.environ():
                        processes.append(child)
    return processes


def end_flow_runs(worker: Service) -> None:
    """Ask the worker's flow runs to end, and wait until they have."""
    processes = flow_runs(worker)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    psutil.wait_procs(processes, GRACE)
