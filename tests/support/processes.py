"""Finding living processes by what their environment says."""

from __future__ import annotations

import psutil


def process_of(flow_run: str) -> psutil.Process:
    """The process that a worker, a child of this one, started for a flow run."""
    below = psutil.Process().children(recursive=True)
    found = [one for one in below if _has(one, "PREFECT__FLOW_RUN_ID", flow_run)]
    (process,) = [one for one in found if one.parent() not in found]
    return process


def processes_of(uid: str) -> list[str]:
    """The commands of the processes that the services of a run left their mark on."""
    found = [one for one in psutil.process_iter() if _has(one, "AGENTFLY_RUN", uid)]
    return [" ".join(one.cmdline()) for one in found]


def _has(process: psutil.Process, key: str, value: str) -> bool:
    try:
        return process.environ().get(key) == value
    except psutil.Error:
        return False
