"""Sending to a service that may be away: calls wait in order for one thread, and nobody waits for
the thread.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, Protocol, TypeVar

from agentfly_core.system.formats.text import fault

ATTEMPTS = 3
RETRY_SECONDS = 5.0


class Connection(Protocol):
    """The service, once it was reached."""

    def answers(self) -> bool:
        """Whether the service is there now; must not raise."""


class EntriesRefused(Exception):
    """Entries of a call that the service refuses, each with its reason; the others are sent."""

    def __init__(self, entries: Sequence[str]) -> None:
        super().__init__(", ".join(entries))
        self.entries = tuple(entries)


C = TypeVar("C", bound=Connection)
P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Unsent:
    """What a service does not have: `Unsent(("step 7", "the end"), (), "Connection refused")`;
    false when nothing.

    `waiting` is kept since the service does not answer, `refused` was given up since it does, with
    its reason.
    """

    waiting: tuple[str, ...]
    refused: tuple[str, ...]
    reason: str

    def __bool__(self) -> bool:
        return bool(self.waiting or self.refused)


@dataclass(eq=False)
class _Call(Generic[C]):
    label: str
    send: Callable[[C], None]
    attempts: int = 0


class Outbox(Generic[C]):
    """Calls to a service, made in order by one thread; it calls `connect` too, which may raise.

    A call that fails while the service answers is tried three times and then given up; one that
    fails while it does not answer stays first until it does. A call that raises EntriesRefused is
    not repeated. Each refusal is reported once.
    """

    def __init__(self, connect: Callable[[], C]) -> None:
        self.connection: C | None = None
        self._connect = connect
        self._calls: deque[_Call[C]] = deque()
        self._refused: list[str] = []
        self._reason = ""
        self._failures = 0
        self._hurry = self._closed = False
        self._changed = threading.Condition()
        threading.Thread(target=self._work, name="outbox", daemon=True).start()

    def put(
        self, label: str, send: Callable[Concatenate[C, P], None], *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Call `send(connection, *args)` when its turn comes; `label` names it to people."""
        with self._changed:
            self._calls.append(_Call(label, lambda connection: send(connection, *args, **kwargs)))
            self._changed.notify_all()

    def flush(self, deadline: float) -> Unsent:
        """Wait until all is sent, at most `deadline` seconds, and less when the service does not
        answer.
        """
        end = time.monotonic() + deadline
        with self._changed:
            failures, self._hurry = self._failures, True
            self._changed.notify_all()
            while (
                self._calls
                and self._failures < failures + ATTEMPTS
                and (left := end - time.monotonic()) > 0
            ):
                self._changed.wait(left)
            self._hurry = False
            return Unsent(
                tuple(call.label for call in self._calls), tuple(self._refused), self._reason
            )

    def close(self) -> None:
        """Send no more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._closed)
                if self._closed:
                    return
                call = self._calls[0]
            try:
                self.connection = self.connection or self._connect()
                call.send(self.connection)
                over = True
            except EntriesRefused as refused:
                self._refused += [e for e in refused.entries if e not in self._refused]
                over = True
            except Exception as error:  # whatever a mere listener raises, the work continues
                over = self._given_up(call, error)
            if over:
                with self._changed:
                    self._calls.remove(call)
                    self._changed.notify_all()

    def _given_up(self, call: _Call[C], error: Exception) -> bool:
        """Whether a call that failed is given up; else this waits until it may be repeated."""
        there = self.connection is not None and self.connection.answers()
        call.attempts += there
        if call.attempts == ATTEMPTS:
            self._refused.append(f"{call.label} ({cause(error)})")
            return True
        with self._changed:
            self._failures += not there
            self._reason = cause(error)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._hurry or self._closed, RETRY_SECONDS)
        return False


def cause(error: BaseException) -> str:
    """What lies at the bottom of an error, in a line:
    `ConnectionRefusedError: [Errno 111] Connection refused`.
    """
    while below := error.__cause__ or error.__context__:
        error = below
    return fault(error).splitlines()[0][:200]
