"""What became of an execution."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

_OUT_OF_MEMORY = re.compile(r"^[\w.]*MemoryError\b")
_DISK_FULL = "[Errno 28]"
_FILE_TOO_LARGE = "[Errno 27]"


class Status(StrEnum):
    """How an execution ended. Only `unavailable` is ours: the sandbox failed, and the code is not to blame."""

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    OOM = "oom"
    OUTPUT_LIMIT = "output_limit"
    DISK_LIMIT = "disk_limit"
    KILLED = "killed"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class ExecResult:
    """What an execution left: `ExecResult(Status.OK, 0, "2\\n", "", False, 0.004, 31_457_280, "forkserver")`.

    `exit_code` is the process's, -9 for signal 9, None when there was none; it proves nothing, and neither does stdout.
    `truncated` says that there was more output, `duration` is in seconds, `peak_rss` the bytes of the largest process.
    `files` are the collected ones that exist and are plain files.
    """

    status: Status
    exit_code: int | None
    stdout: str
    stderr: str
    truncated: bool
    duration: float
    peak_rss: int
    backend: str
    files: Mapping[str, bytes] = field(default_factory=dict)


def unavailable(why: str, backend: str) -> ExecResult:
    """The sandbox failed; stderr says why, to people and never to a model."""
    return ExecResult(Status.UNAVAILABLE, None, "", why, False, 0.0, 0, backend)


def judged(
    report: Mapping[str, Any],
    stdout: bytes,
    stderr: bytes,
    files: Mapping[str, bytes],
    oom_kills: int,
    backend: str,
) -> ExecResult:
    """The result behind a keeper's report; `oom_kills` are those that the cgroup counted."""
    code = os.waitstatus_to_exitcode(report["wait"])
    text = stderr.decode(errors="replace")
    status = Status.OOM if oom_kills else Status(report["ended"]) if report["ended"] else _status(code, text, report)
    out = stdout.decode(errors="replace")
    cut = report["ended"] == Status.OUTPUT_LIMIT
    return ExecResult(status, code, out, text, cut, report["duration"], report["peak_rss"], backend, files)


def _status(code: int, stderr: str, report: Mapping[str, Any]) -> Status:
    if code == 0:
        return Status.OK
    if code == -signal.SIGXCPU:
        return Status.TIMEOUT
    last = stderr.rstrip().rpartition("\n")[2]
    if _OUT_OF_MEMORY.match(last):
        return Status.OOM
    if report["disk_full"] or _DISK_FULL in last or _FILE_TOO_LARGE in last:
        return Status.DISK_LIMIT
    return Status.KILLED if code < 0 else Status.ERROR
