"""What to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import PurePosixPath

from agentfly_core.sandbox.guest import protocol
from agentfly_core.sandbox.guest.limits import Limits

MAIN = "main.py"
PAGE = 4096


@dataclass(frozen=True, slots=True)
class Order:
    """What to run: `Order(b"print(open('a.txt').read())", {"a.txt": b"hello"}, b"", (), Limits())`.

    With `kept` the interpreter waits for further orders when the code has ended; of those the code and `collect` count.
    """

    code: bytes
    files: Mapping[str, bytes] = field(default_factory=dict)
    stdin: bytes = b""
    collect: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    kept: bool = False

    def __post_init__(self) -> None:
        for name in (*self.files, *self.collect):
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name or name == MAIN:
                raise ValueError(f"Got the file name {name!r}, expected a relative one without '..', not {MAIN}.")
        size = sum(-(-len(content) // PAGE) * PAGE for content in (self.code, *self.files.values()))
        if size > self.limits.disk or sum(name.count("/") + 1 for name in self.files) > self.limits.inodes // 2:
            raise ValueError(
                f"The code and {len(self.files)} files take {size} bytes, the disk of the sandbox has "
                f"{self.limits.disk}; raise `disk`, or `inodes` to twice the number of files."
            )

    def packed(self, base: int) -> bytes:
        """The message to a keeper whose process starts with `base` bytes of memory."""
        header = {"limits": asdict(self.limits), "files": list(self.files), "collect": self.collect, "base": base}
        return protocol.packed(header | {"kept": self.kept}, [self.code, self.stdin, *self.files.values()])
