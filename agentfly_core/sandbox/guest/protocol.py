"""Messages of the sandbox: a request with code to execute, and the result of this execution.

A message consists of a JSON header and binary parts.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict

if TYPE_CHECKING:
    from agentfly_core.system.formats.json_value import JSON

_HEAD = struct.Struct("!I")
LARGEST_HEADER = 2**20


def packed(header: Mapping[str, JSON], blobs: Sequence[bytes] = ()) -> bytes:
    """Encode a message with a JSON header and binary parts."""
    text = json.dumps({**header, "sizes": [len(blob) for blob in blobs]}).encode()
    return b"".join([_HEAD.pack(len(text)), text, *blobs])


def read(file: BinaryIO) -> tuple[Any, list[bytes]]:
    """Read the next message of a file. Return its header, without validation, and its binary parts.

    Raises EOFError at the end of the file.
    """
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        raise EOFError
    header = json.loads(file.read(_HEAD.unpack(head)[0]))
    return header, [file.read(size) for size in header.pop("sizes")]


async def receive(reader: asyncio.StreamReader, most: int) -> tuple[Any, list[bytes]]:
    """Read the next message of a stream. Return its header and its binary parts.

    Raises EOFError at the end of the stream. Raises ValueError if the header is too large, or if
    the binary parts together have more than `most` bytes.
    """
    size = _HEAD.unpack(await reader.readexactly(_HEAD.size))[0]
    if size > LARGEST_HEADER:
        raise ValueError(f"A header has {size} bytes, expected at most {LARGEST_HEADER}.")
    header = json.loads(await reader.readexactly(size))
    sizes = header.pop("sizes")
    if sum(sizes) > most:
        raise ValueError(f"A message has {sum(sizes)} bytes, expected at most {most}.")
    return header, [await reader.readexactly(size) for size in sizes]


MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of an execution, in seconds and bytes: `Limits(wall=2.0, memory=256 * MIB)`.

    - `wall`, `cpu`: elapsed time and CPU time
    - `memory`: the memory of each process, and of all processes together. The backend `unsafe`
      limits all processes together only if it can use control groups.
    - `processes`: the number of processes and threads
    - `disk`, `inodes`: the size and the number of files in the working directory, /tmp and /dev/shm
      together
    - `captured`: the size of stdout and stderr together
    """

    wall: float = 10.0
    cpu: int = 8
    memory: int = 512 * MIB
    processes: int = 32
    disk: int = 64 * MIB
    inodes: int = 4096
    captured: int = MIB

    def __post_init__(self) -> None:
        for bound in fields(self):
            if getattr(self, bound.name) <= 0:
                raise ValueError(
                    f"{bound.name}: got {getattr(self, bound.name)}, expected more than 0."
                )


MAIN = "main.py"
PAGE = 4096


class RequestHeader(TypedDict):
    """The header of a request to the sandbox.

    It contains the limits, the names of the sent files (`files`), and the names of the files to
    return (`collect`).
    """

    limits: dict[str, float]
    files: list[str]
    collect: list[str]
    kept: bool


class Report(TypedDict):
    """The header of the message that the sandbox sends after it ran code.

    `files` has the names of the returned files. The other fields describe how the code ended.
    """

    ended: str | None
    wait: int
    alive: bool
    duration: float
    peak_rss: int
    disk_full: bool
    files: list[str]


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """Code to run: `ExecRequest(b"print(open('a.txt').read())", {"a.txt": b"hello"})`.

    `files` are written to the working directory. `collect` lists the names of files to return. If
    the backend is a fork server, `modules` are imported before the code starts. With `kept`, the
    interpreter stays alive after the code, and its variables can be used by later requests over the
    same connection. These later requests use only `code` and `collect`.
    """

    code: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    collect: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    kept: bool = False
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.files, *self.collect):
            path = PurePosixPath(name)
            leads_out = path.is_absolute() or ".." in path.parts
            if leads_out or not path.parts or "\0" in name or name == MAIN:
                raise ValueError(
                    f"Got the file name {name!r}, expected a relative path without '..'. The name "
                    f"{MAIN} is reserved for the program."
                )
        # the file system (tmpfs) stores whole pages
        size = sum(-(-len(content) // PAGE) * PAGE for content in (self.code, *self.files.values()))
        folders = {folder for name in self.files for folder in PurePosixPath(name).parents}
        if size > self.limits.disk or len(self.files) + len(folders) > self.limits.inodes // 2:
            raise ValueError(
                f"The code and {len(self.files)} files need {size} bytes and "
                f"{2 * (len(self.files) + len(folders))} inodes, expected at most "
                f"{self.limits.disk} bytes (`disk`) and {self.limits.inodes} inodes (`inodes`). "
                "Raise the exceeded limit."
            )

    def packed(self) -> bytes:
        header: dict[str, JSON] = {"limits": asdict(self.limits), "files": list(self.files)}
        header |= {"collect": self.collect, "kept": self.kept}
        return packed(header, [self.code, self.stdin, *self.files.values()])


_OUT_OF_MEMORY = re.compile(r"^[\w.]*MemoryError\b")
_DISK_FULL = "[Errno 28]"
_FILE_TOO_LARGE = "[Errno 27]"


class Status(StrEnum):
    """How a run of code in the sandbox ended. `unavailable` means that the sandbox failed."""

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
    """The result of an execution.

    Example: `ExecResult(Status.OK, 0, "2\\n", "", False, 0.004, 31_457_280, "forkserver")`.

    - `exit_code`: the exit code, or -9 if signal 9 ended the process. It is None if no process was
      started. It is not reliable, because the code can fake it.
    - `truncated`: whether the output was cut
    - `duration`: in seconds
    - `peak_rss`: the peak memory of the largest process in bytes
    - `backend`: the name of the sandbox's backend
    - `files`: the contents of the requested regular files
    """

    status: Status
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    duration: float = 0.0
    peak_rss: int = 0
    backend: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


def unavailable(why: str, backend: str) -> ExecResult:
    """Make the result for a failure of the sandbox.

    The reason is stored in `stderr`. Models never read this reason.
    """
    return ExecResult(Status.UNAVAILABLE, stderr=why, backend=backend)


def judged(report: Report, blobs: Sequence[bytes], oom_kills: int, backend: str) -> ExecResult:
    """Make the ExecResult from the message that the sandbox sent after it ran the code.

    `report` is the header of the message. `blobs` has stdout, stderr and the returned files.
    `oom_kills` is the number of processes in the cgroup that the kernel killed at the memory limit.
    """
    stdout, stderr = (blob.decode(errors="replace") for blob in blobs[:2])
    code, ended = os.waitstatus_to_exitcode(report["wait"]), report["ended"]
    last = stderr.rstrip().rpartition("\n")[2]
    # the count of the kernel takes precedence, because code can fake its exit code
    if oom_kills:
        status = Status.OOM
    elif ended:
        status = Status(ended)
    elif code == 0:
        status = Status.OK
    elif code == -signal.SIGXCPU:
        status = Status.TIMEOUT
    elif _OUT_OF_MEMORY.match(last):
        status = Status.OOM
    elif report["disk_full"] or _DISK_FULL in last or _FILE_TOO_LARGE in last:
        status = Status.DISK_LIMIT
    else:
        status = Status.KILLED if code < 0 else Status.ERROR
    files = dict(zip(report["files"], blobs[2:], strict=True))
    seconds, peak, cut = report["duration"], report["peak_rss"], ended == Status.OUTPUT_LIMIT
    return ExecResult(status, code, stdout, stderr, cut, seconds, peak, backend, files)
