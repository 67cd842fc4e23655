"""Python that a model writes, run in a sandbox of its own for each call: nothing is kept between calls."""

from __future__ import annotations

from agentfly_core.environment import ServiceFailure
from agentfly_core.sandbox.forkserver import Unavailable
from agentfly_core.sandbox.limits import Limits
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.sandbox.result import ExecResult, Status
from agentfly_core.sandbox.running import run
from agentfly_core.tool import ToolError, tool

SHOWN = 8192
LIMITS = Limits()
_TOLD = {
    Status.TIMEOUT: f"Stopped: it took longer than {LIMITS.wall:g} s, or {LIMITS.cpu} s of computing.",
    Status.OOM: f"Stopped: it needed more than {LIMITS.memory >> 20} MB of memory.",
    Status.OUTPUT_LIMIT: f"Stopped: it printed more than {LIMITS.captured >> 20} MB.",
    Status.DISK_LIMIT: f"Stopped: it wrote more than {LIMITS.disk >> 20} MB or {LIMITS.inodes} files.",
}


@tool(timeout=120.0, max_chars=SHOWN, retries=1, ready=chosen)
async def python(code: str) -> str:
    """Run a Python program and read what it prints.

    Args:
        code: the whole program; print() what you want to know, nothing is kept between calls
    """
    try:
        result = await run(code, limits=LIMITS)
    except Unavailable as error:
        raise ServiceFailure(str(error)) from error
    if result.status is Status.UNAVAILABLE:
        raise ServiceFailure(f"The sandbox failed: {result.stderr}")
    if result.status is not Status.OK:
        raise ToolError(_told(result))
    return _said(result) or "The program printed nothing."


def _told(result: ExecResult) -> str:
    ended = f"Ended by signal {-(result.exit_code or 0)}." if result.status is Status.KILLED else ""
    exited = "" if result.stderr.strip() else f"Ended with exit code {result.exit_code}."
    return "\n".join(filter(None, [_said(result), _TOLD.get(result.status, ended or exited)]))


def _said(result: ExecResult) -> str:
    return "\n".join(filter(None, [result.stdout.rstrip("\n"), result.stderr.rstrip("\n")]))
