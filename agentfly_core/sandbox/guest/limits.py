"""How much one execution may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds and bytes for one execution: `Limits(wall=2.0, memory=256 * MIB)`; the rest as here.

    `memory` bounds each process, and all of them together where there is a memory cgroup; `processes` counts threads
    too; `disk` and `inodes` bound the working directory, /tmp and /dev/shm together; `captured` is how much of stdout
    and stderr together is kept before the execution is ended.
    """

    wall: float = 10.0
    cpu: int = 8
    memory: int = 512 * MIB
    processes: int = 32
    disk: int = 64 * MIB
    inodes: int = 4096
    captured: int = MIB

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise ValueError(f"{field.name}: got {getattr(self, field.name)}, expected more than 0.")
