"""The text that a model reads after its code was run in the sandbox."""

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.authoring.tool import ToolError
from agentfly_core.sandbox.guest.protocol import MIB, ExecResult, Limits, Status


def feedback(result: ExecResult, limits: Limits, note: str = "") -> str:
    """Return the text that the code printed, followed by `note`.

    Raises ToolError if the code failed. The error message also contains the printed text and
    `note`. Raises ServiceFailure if the sandbox failed.
    """
    if result.status is Status.UNAVAILABLE:
        raise ServiceFailure(f"The sandbox failed: {result.stderr}")
    printed = [result.stdout.rstrip("\n"), result.stderr.rstrip("\n")]
    if result.status is Status.OK:
        return "\n".join(filter(None, [*printed, note]))
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
    ending = stopped.get(result.status, exited)
    raise ToolError("\n".join(filter(None, [*printed, ending, note])))
