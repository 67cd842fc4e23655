"""Allow one writer per run on object storage. The owner of a lock object must renew it regularly;
otherwise another process may take it over.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.store.lock import LockLost, in_words, local_lock, locked
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_json
from agentfly_core.system.process import Owner

if TYPE_CHECKING:
    from agentfly_core.store.object_storage import Remote

# Several renewals fit into EXPIRY: a slow upload or two failed renewals must not lose the lock.
HEARTBEAT = 20.0
EXPIRY = 120.0
LOOK = 5.0
logger = logging.getLogger(__name__)
_since: dict[tuple[str, str], float] = {}
"""The monotonic time at which this process first saw a tag of a lock object, by address and tag."""


def refuse_if_leased(remote: Remote, uri: str) -> None:
    """Raise Locked while a running process holds a run. May watch the lock for two minutes."""
    Lease(remote, f"{uri}/lock.json").awaited()


def leaseholder(remote: Remote, uri: str) -> str:
    """Return the name of the process that holds a run. Empty if the run is free, or if the lock was
    not renewed for two minutes.
    """
    lock = Lease(remote, f"{uri}/lock.json").look()
    if lock.free or (not lock.sure and remote.age(f"{uri}/lock.json") > EXPIRY):
        return ""
    return in_words(lock.owner)


@contextmanager
def remote_lock(remote: Remote, uri: str) -> Iterator[None]:
    """Hold a run's lock object during the block, and renew it by a heartbeat. Raises Locked.

    The lock of a dead process of this machine is taken over at once. Locks of other machines are
    taken over after two minutes without renewal. A takeover increases the fencing number, and later
    writes of the old owner raise LockLost.
    """
    lease = Lease(remote, f"{uri}/lock.json")
    lease.take()
    beat = threading.Thread(target=lease.keep, name="run-lock", daemon=True)
    beat.start()
    # from here on, each write first checks that the lock still names this process
    remote.guard = lease.check
    try:
        yield
    finally:
        lease.stop.set()
        # stopped first, because a late renewal would mark the released lock as held again
        beat.join()
        lease.release()


@contextmanager
def only_writer(store: Store, uri: str) -> Iterator[None]:
    """Lock a run of a local or remote store during the block. Raises Locked."""
    remote = store.remote
    with remote_lock(remote, uri) if remote else local_lock(store.path(uri)):
        yield


@dataclass(frozen=True, slots=True)
class Clock:
    """A monotonic clock in seconds, and a function that sleeps."""

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Held:
    """The content of a lock object: `Held('"9f2c"', Owner("node7", ...), 7, released=False)`.

    `tag` is the ETag of the object, empty if it is missing. `owner` is None if the object is
    damaged. `fence` is the fencing number, which each takeover increases.
    """

    tag: str
    owner: Owner | None
    fence: int
    released: bool

    @property
    def sure(self) -> bool:
        """Whether the owner is a process of this machine. Only then can its death be detected."""
        return self.owner is not None and self.owner.here

    @property
    def free(self) -> bool:
        """Whether the lock is released, or its owner is certainly dead."""
        return self.released or (self.sure and self.owner is not None and not self.owner.alive)


class Lease:
    """The lock object of a run, seen by a process that owns the lock or tries to take it."""

    def __init__(self, remote: Remote, uri: str, clock: Clock = Clock()) -> None:
        self.remote, self.uri, self.clock = remote, uri, clock
        self.address = f"{remote.uri}/{uri}"
        self.owner = Owner.current()
        self.stop = threading.Event()
        self.fence = self.beats = 0

    def look(self) -> Held:
        """Read the lock object. A damaged object is logged; its owner is None."""
        text, tag = self.remote.tagged(self.uri) or ("", "")
        if not tag:
            return Held("", None, 0, released=True)
        try:
            return _read(text, tag)
        except ValueError as fault:
            logger.warning("%s is damaged (%s): its owner is unknown.", self.address, fault)
            return Held(tag, None, 0, released=False)

    def awaited(self) -> Held:
        """Wait until the lock is free, and return it.

        Raises Locked if another process holds the lock. An owner on another machine counts as dead
        after EXPIRY seconds without a renewal.
        """
        first = lock = self.look()
        while not lock.free:
            # a changed tag means a renewal, so the owner is alive
            if lock.sure or lock.tag != first.tag:
                raise locked(self._run, in_words(lock.owner))
            seen = (self.address, lock.tag)
            if seen not in _since:
                # age is measured by the observer's monotonic clock: clocks of machines and storage
                # may differ
                _since[seen] = self.clock.now()
                logger.warning(
                    "The run %r is held by %s, which may be dead. Watching the lock for up to %g "
                    "s: if it is not renewed, this process takes over the run.",
                    self._run,
                    in_words(lock.owner),
                    EXPIRY,
                )
            if self.clock.now() - _since[seen] >= EXPIRY:
                logger.warning(
                    "The lock %s was not renewed for %g s; this process takes over the run.",
                    self.address,
                    EXPIRY,
                )
                break
            self.clock.sleep(LOOK)
            lock = self.look()
        return lock

    def take(self) -> None:
        """Create or take over the lock; raises Locked."""
        lock = self.awaited()
        # the write is conditional on the tag just read, so only one of two candidates succeeds
        self.fence = lock.fence + 1
        text, remote, tag = self._text(released=False), self.remote, lock.tag
        taken = remote.replace(self.uri, text, tag) if tag else remote.create(self.uri, text)
        if not taken:
            raise locked(self._run, in_words(None))

    def keep(self) -> None:
        """Renew the lock until `stop` is set."""
        while not self.stop.wait(HEARTBEAT):
            self._write(released=False)

    def check(self) -> None:
        """Raise LockLost if this process no longer owns the lock."""
        mine = False
        with suppress(ValueError):
            mine = self._mine(self.remote.read(self.uri))
        if not mine:
            raise LockLost(
                f"This process no longer owns the lock {self.address}, so it stops writing. "
                "Another process took over the run, or the lock was removed or damaged."
            )

    def release(self) -> None:
        """Mark the lock object as released. The object stays, with its fencing number."""
        self._write(released=True)

    @property
    def _run(self) -> str:
        return Path(self.uri).parent.name

    def _write(self, released: bool) -> None:
        try:
            text, tag = self.remote.tagged(self.uri) or (None, "")
            # the write below is conditional on the tag, so it fails if another process has taken
            # over the lock meanwhile
            if self._mine(text):
                self.remote.replace(self.uri, self._text(released), tag)
        except Exception as error:  # after any error the next heartbeat tries again
            logger.warning("The lock %s was not renewed: %s", self.address, error)

    def _mine(self, text: str | None) -> bool:
        if text is None:
            return False
        held = _read(text, "")
        return (held.owner, held.fence) == (self.owner, self.fence)

    def _text(self, released: bool) -> str:
        # `beat` makes each renewal a new version of the object; `renewed` is for human readers
        self.beats += 1
        state = {"fence": self.fence, "beat": self.beats, "renewed": time.time()}
        return json.dumps({"owner": self.owner.to_json(), **state, "released": released})


def _read(text: str, tag: str) -> Held:
    """Parse a lock object; raises ValueError if it is damaged."""
    match strict_json.parse(text):
        case {"owner": owner, "fence": int(fence), "released": bool(released)}:
            return Held(tag, Owner.of(owner), fence, released)
    raise ValueError("expected owner, fence and released")
