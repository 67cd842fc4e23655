"""Find living processes by their environment."""

import re
import signal
from contextlib import suppress
from pathlib import Path

import psutil


def process_of(flow_run: str) -> psutil.Process:
    """The process that a worker, a child of this one, started for a flow run."""
    below = psutil.Process().children(recursive=True)
    processes = [one for one in below if _has(one, "PREFECT__FLOW_RUN_ID", flow_run)]
    (process,) = [one for one in processes if one.parent() not in processes]
    return process


def processes_of(uid: str) -> list[str]:
    """The commands of the processes that the services of a run left their mark on."""
    processes = [one for one in psutil.process_iter() if _has(one, "AGENTFLY_RUN", uid)]
    return [*filter(None, map(command, processes))]


def command(process: psutil.Process) -> str:
    """Its command; nothing where it has ended."""
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def is_to_end(process: psutil.Process) -> bool:
    """Whether a stopped process has a pending SIGTERM."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (pending,) = re.findall(r"^ShdPnd:\s*(\w+)", status, re.MULTILINE)
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


def _has(process: psutil.Process, key: str, value: str) -> bool:
    try:
        return process.environ().get(key) == value
    except psutil.Error:
        return False
