"""The connection to a worker process. It includes the shared memory in which the worker records its
calls.
"""

import mmap
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from agentfly_core.authoring import call_table
from agentfly_core.authoring.call_table import CallRecord
from agentfly_core.authoring.event_loop import LONGEST
from agentfly_core.pipeline.workers.messages import FromWorker, GivenUp, ToWorker, decoded, encoded
from agentfly_core.system.guarded import GuardedProcess

PROGRAM = "agentfly_core.pipeline.workers.program"
LOOK = 1.0
MARGIN = 5.0
"""A worker is killed after this many seconds without a heartbeat, plus the longest time limit of
its running calls.
"""
STACKS_SECONDS = 0.5
"""Seconds in which a silent worker can write the stacks of its threads into its log."""


@dataclass(frozen=True, slots=True)
class Death:
    """The death of a worker process.

    Example: `Death("ended its process: SIGSEGV", True, [CallRecord(...)], [...])`.

    - `how`: the cause of the death
    - `certain`: whether a call in the worker certainly caused the death. After SIGKILL, this is
      false, because the signal may come from outside.
    - `running`: the calls that were running and may have caused the death
    - `calls`: all unfinished calls, including calls that were waiting
    """

    how: str
    certain: bool
    running: Sequence[CallRecord]
    calls: Sequence[CallRecord]

    @property
    def suspects(self) -> list[str]:
        """The ids of the episodes with unfinished calls, which may have killed the worker."""
        return [*dict.fromkeys(call.episode for call in self.calls if call.episode)]

    def culprit(self, alone: Sequence[str]) -> CallRecord | None:
        """Return the call that caused the worker's death, or None if the cause is uncertain.

        If calls of several episodes may have caused the death, the result is None. After SIGKILL,
        a call is returned only if its episode was played alone. If other episodes were played at
        the same time, one of them may have used up the memory of the system. `alone` contains the
        ids of episodes that were played alone.
        """
        # a waiting call cannot have ended the process
        candidates = self.running or self.calls
        episodes = {call.episode for call in candidates}
        if len(episodes) != 1 or "" in episodes:
            return None
        # if memory is short, the kernel kills the largest process, so an episode is blamed only
        # if it was played alone
        if not self.certain and episodes.isdisjoint(alone):
            return None
        # a tool call runs within the call of its agent, so the newest call is the cause
        return max(candidates, key=attrgetter("since"))


class Disconnected(Exception):
    """The worker process has died or has closed the connection."""


class Connection:
    """A worker process and the connection to it: `Connection({"TMPDIR": "/tmp/x"}, log)`.

    The arguments are the worker's environment variables and the path of its log.
    """

    def __init__(self, env: Mapping[str, str], log: Path) -> None:
        self._log, self._given_up = log, GivenUp("", ())
        # shared memory, because this process must be able to read it after the worker's death
        memory = os.memfd_create("calls")
        os.ftruncate(memory, call_table.SIZE)
        self._table = mmap.mmap(memory, call_table.SIZE)
        with log.open("ab") as output:
            self.process = GuardedProcess(PROGRAM, env, output.fileno(), memory)
        os.close(memory)

    def send(self, message: ToWorker) -> None:
        """Send a message to the worker. Raises Disconnected if the worker has died."""
        try:
            self.process.lines.send(encoded(message))
        except OSError as error:
            raise Disconnected from error

    def received(self) -> FromWorker | None:
        """Return the next message of the worker, or None if no message arrives in time.

        The method waits at most `LOOK` seconds. If no message arrives, a blocked worker is killed
        before the method returns. A worker counts as blocked if its last heartbeat is too old. The
        maximum age is the longest time limit of its running calls plus `MARGIN` seconds. Raises
        Disconnected if the worker has died or has closed the connection.
        """
        try:
            message = decoded(self.process.lines.receive(LOOK))
        except TimeoutError:
            self._kill_if_silent()
            return None
        except (OSError, EOFError) as error:
            raise Disconnected from error
        if isinstance(message, GivenUp):
            self._given_up = message
        assert isinstance(message, FromWorker)
        return message

    def death(self) -> Death:
        """Describe how the worker died, and write the cause to the worker's log."""
        cause = self.process.cause()
        with self._log.open("a") as log:
            log.write(f"--- ended: {cause}\n")
        running, calls = call_table.running(self._table), call_table.calls(self._table)
        if self._given_up.how:
            return Death(self._given_up.how, True, self._given_up.calls, calls)
        certain = cause != signal.SIGKILL.name
        return Death(f"ended its process: {cause}", certain, running, calls)

    def _kill_if_silent(self) -> None:
        beat, running = call_table.heartbeat(self._table), call_table.running(self._table)
        longest = max((call.longest for call in running), default=LONGEST)
        # the heartbeat is 0 while the process is starting, and then the process is not silent
        if beat and time.monotonic() - beat > longest + MARGIN:
            how = f"blocked its process for more than {longest:g} s"
            self._given_up = GivenUp(how, (*running,))
            self.process.dump_stacks()
            time.sleep(STACKS_SECONDS)
            self.process.kill()
