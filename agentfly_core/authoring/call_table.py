"""Record the running calls of users' functions, such as tools, in shared memory.

A call is recorded before its function runs. If a worker process died or hangs, the main process
can read the worker's calls. This works even while a thread of the worker holds the GIL.
"""

import mmap
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass

ROW = 256
ROWS = 1 << 17
"""The largest number of simultaneous calls: 2 for each of 65,536 episodes. Unused rows take no
memory.
"""
SIZE = ROWS * ROW
"""The size of a table in bytes."""
HEAD = struct.Struct("=dIdI")
"""The header of a call table, which records the running calls of a process.

The header contains the time of the last heartbeat, the row of the call that holds the event loop
(0 if the loop is free), the time when this call started to hold the loop, and the last used row.
Each call of `beat`, `hold` or `release` of a `CallTable` records a heartbeat.
"""
CALL = struct.Struct("=Hdd?")
"""The header of a row, which records one call.

The header contains the number of bytes of the text after the header (0 for an unused row), the
start time and the time limit in seconds, and whether the call runs in a thread.
"""
Bytes = bytes | mmap.mmap


@dataclass(frozen=True, slots=True)
class CallRecord:
    """A running call: `CallRecord("The tool 'search'", "9f2c01d4", 8123.5, 30.0, in_thread=True)`.

    - `what`: the name of the called tool or other function
    - `episode`: the id of the episode, or "" for a call outside of episodes
    - `since`: the start of the call, in seconds of the monotonic clock. In a record that the
      function `holder` returns, `since` is instead the time when the call's code last started to
      run on the event loop.
    - `longest`: the call's time limit in seconds, or a default value for a call without a time
      limit. On the event loop, a call may run for `longest` seconds without a pause.
    - `in_thread`: whether the call runs in its own thread
    """

    what: str
    episode: str
    since: float
    longest: float
    in_thread: bool

    @property
    def overdue(self) -> bool:
        """Whether more than `longest` seconds have passed since the time in the field `since`."""
        return time.monotonic() - self.since > self.longest


class CallTable:
    """Records the running calls of this process in the memory map `memory`.

    `held` is the time in seconds for which calls have blocked the event loop, in total.
    `given_up` contains the rows of calls that still run although their callers have stopped
    waiting.
    """

    def __init__(self, memory: mmap.mmap) -> None:
        self._memory = memory
        self._free, self._last = list[int](), 0
        self._since = self.held = 0.0
        self.given_up = set[int]()

    def begin(self, what: str, episode: str, longest: float, in_thread: bool) -> int:
        """Record a call, and return its row in the table.

        The arguments are fields of `CallRecord`.
        """
        row = self._free.pop() if self._free else self._new_row()
        # the text is written before its length, because a reader must never find a partial text
        text = f"{episode}\n{what}".encode()[: ROW - CALL.size]
        place = row * ROW + CALL.size
        self._memory[place : place + len(text)] = text
        # in a plain memory map, because another process reads it when this process hangs or has
        # crashed
        CALL.pack_into(self._memory, row * ROW, len(text), time.monotonic(), longest, in_thread)
        return row

    def strike(self, row: int) -> None:
        """Record that the call in the row `row` has ended.

        Other calls cannot use the row before the method `free` releases it. Any thread may call
        this method.
        """
        CALL.pack_into(self._memory, row * ROW, 0, 0.0, 0.0, False)

    def free(self, row: int) -> None:
        """Record in the row `row` that its call has ended, and release the row for other calls."""
        self.strike(row)
        self.given_up.discard(row)
        self._free.append(row)

    def hold(self, row: int) -> None:
        """Record that the call in the row `row` starts to run on the event loop.

        No other call can run on the loop before this call pauses (see `release`).
        """
        self._since = time.monotonic()
        HEAD.pack_into(self._memory, 0, self._since, row, self._since, self._last)

    def release(self) -> float:
        """Record that the call on the event loop has paused.

        Return the number of seconds for which the call has run since the last call of `hold`.
        """
        now = time.monotonic()
        # row 0 is the header, so the row 0 means that the loop is free
        HEAD.pack_into(self._memory, 0, now, 0, now, self._last)
        self.held += now - self._since
        return now - self._since

    def _new_row(self) -> int:
        self._last += 1
        struct.pack_into("=I", self._memory, HEAD.size - 4, self._last)
        return self._last

    def beat(self) -> None:
        """Record a heartbeat, which shows that the threads of this process run."""
        struct.pack_into("=d", self._memory, 0, time.monotonic())

    @property
    def holder(self) -> CallRecord | None:
        """The call that is running on the event loop now, or None."""
        return holder(self._memory)


def heartbeat(table: Bytes) -> float:
    """Return the time of the last heartbeat that a process recorded in its table.

    The time is in seconds of the monotonic clock. It is 0 before the first heartbeat.
    """
    seconds: float = HEAD.unpack_from(table, 0)[0]
    return seconds


def holder(table: Bytes) -> CallRecord | None:
    """Return the call that is running on the event loop now, or None."""
    _, row, since, _ = HEAD.unpack_from(table, 0)
    call = _call(table, row) if row else None
    return CallRecord(call.what, call.episode, since, call.longest, False) if call else None


def calls(table: Bytes) -> Sequence[CallRecord]:
    """Return all running calls in a table, including calls that are suspended at an `await`."""
    last: int = HEAD.unpack_from(table, 0)[3]
    return [call for row in range(1, last + 1) if (call := _call(table, row))]


def running(table: Bytes) -> Sequence[CallRecord]:
    """Return the call that is running on the event loop now, and all calls in threads."""
    first, threads = holder(table), [call for call in calls(table) if call.in_thread]
    return [first, *threads] if first else threads


def _call(table: Bytes, row: int) -> CallRecord | None:
    size, since, longest, in_thread = CALL.unpack_from(table, row * ROW)
    if not size:
        return None
    place = row * ROW + CALL.size
    episode, _, what = table[place : place + size].decode(errors="replace").partition("\n")
    return CallRecord(what, episode, since, longest, in_thread)


table = CallTable(mmap.mmap(-1, SIZE))
"""The table with the running calls of this process."""


def renew(memory: mmap.mmap | None = None) -> None:
    """Replace the table of this process by a new, empty table.

    The new table is stored in `memory`, by default in a new memory map. Calls that begin later are
    recorded in it. Calls that began earlier continue to write into the old table.
    """
    # a module variable, because each call looks up the table when it begins
    global table
    table = CallTable(memory or mmap.mmap(-1, SIZE))
