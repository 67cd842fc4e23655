"""The text about an execution that a model reads."""

from __future__ import annotations

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.tool import ToolError
from agentfly_core.sandbox.guest.protocol import MIB, ExecResult, Limits, Status


def told(result: ExecResult, limits: Limits, note: str = "") -> str:
    """What the program printed, and `note` behind it; empty when there is neither.

    Raises ToolError, with what it printed until then, for a program that did not end well, and
    ServiceFailure when the sandbox failed.
    """
    if result.status is Status.UNAVAILABLE:
        raise ServiceFailure(f"The sandbox failed: {result.stderr}")
    if result.status is not Status.OK:
        raise ToolError("\n".join(filter(None, [_printed(result), _ending(result, limits), note])))
    return "\n".join(filter(None, [_printed(result), note]))


def _ending(result: ExecResult, limits: Limits) -> str:
    stopped = {
        Status.TIMEOUT: f"Stopped: it took longer than {limits.wall:g} s, "
        f"or {limits.cpu} s of computing.",
        Status.OOM: f"Stopped: it needed more than {limits.memory // MIB} MB of memory.",
        Status.OUTPUT_LIMIT: f"Stopped: it printed more than {limits.captured // MIB} MB.",
        Status.DISK_LIMIT: f"Stopped: it wrote more than {limits.disk // MIB} MB "
        f"or {limits.inodes} files.",
        Status.KILLED: f"Ended by signal {-(result.exit_code or 0)}.",
    }
    exited = "" if result.stderr.strip() else f"Ended with exit code {result.exit_code}."
    return stopped.get(result.status, exited)


def _printed(result: ExecResult) -> str:
    return "\n".join(filter(None, [result.stdout.rstrip("\n"), result.stderr.rstrip("\n")]))
