"""Allow only one writer for each run on object storage.

A lock is an object in the storage. The process that owns the lock must renew the object regularly.
Otherwise another process may take over the lock.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentfly_core.store.lock import LockLost, holder_of, in_words, local_lock, locked
from agentfly_core.store.store import Store
from agentfly_core.system.formats import strict_json
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.process import Owner

if TYPE_CHECKING:
    from agentfly_core.store.object_storage import Remote

# Several renewals fit into EXPIRY: a slow upload or two failed renewals must not lose the lock.
HEARTBEAT = 20.0
EXPIRY = 120.0
LOOK = 5.0
logger = logging.getLogger(__name__)
_since: dict[tuple[str, str], float] = {}
"""Maps the address and the ETag of a lock object to the monotonic time in seconds at which this
process first saw this ETag.
"""


def refuse_if_held(store: Store, uri: str) -> None:
    """Raise Locked while a running process holds the lock of a run, in a local or a remote store.

    If the process runs on another machine, this function may take two minutes. The process counts
    as dead if it does not renew the lock in this time.
    """
    if store.remote:
        Lease(store.remote, f"{uri}/lock.json").awaited()
    elif holder := holder_of(store.path(uri)):
        raise locked(Path(uri).name, holder)


def holder_in(store: Store, uri: str) -> str:
    """Return the name of the process that holds the lock of a run, in a local or a remote store.

    The result is empty if the lock is free. On object storage, a lock of another machine also
    counts as free if it was not renewed for two minutes.
    """
    if (remote := store.remote) is None:
        return holder_of(store.path(uri))
    lock = Lease(remote, f"{uri}/lock.json").look()
    if lock.free or (not lock.sure and remote.age(f"{uri}/lock.json") > EXPIRY):
        return ""
    return in_words(lock.owner)


@contextmanager
def remote_lock(remote: Remote, uri: str) -> Iterator[None]:
    """Hold the lock of a run during the `with` block. A thread renews the lock regularly.

    Raises Locked while another process holds the lock. If the other process ran on this machine and
    is dead, the lock is taken over at once. If the other process ran on another machine, the lock
    is taken over after two minutes without a renewal. A takeover increases the fencing number
    (a counter) in the lock, so that later writes of the old owner raise LockLost.
    """
    lease = Lease(remote, f"{uri}/lock.json")
    lease.take()
    beat = threading.Thread(target=lease.keep, name="run-lock", daemon=True)
    beat.start()
    guard(remote, lease.claim)
    try:
        yield
    finally:
        lease.stop.set()
        # renewals end before the release, because a late renewal would mark the lock as held again
        beat.join()
        lease.release()


def guard(remote: Remote, claim: Mapping[str, JSON]) -> None:
    """Make `remote` check the lock of a run before each later write.

    `claim` contains the path, the owner and the fencing number of the lock. A write raises LockLost
    if the lock object has another owner or fencing number. Worker processes use the claim of the
    process that holds the lock.
    """
    lease = Lease(remote, str(claim["uri"]))
    lease.owner, lease.fence = Owner.of(claim["owner"]), int(str(claim["fence"]))
    remote.claim, remote.guard = claim, lease.check


@contextmanager
def only_writer(store: Store, uri: str) -> Iterator[None]:
    """Hold the lock of a run during the `with` block, in a local or a remote store.

    `uri` is the path of the run's folder in the store. Raises Locked if another process holds the
    lock.
    """
    remote = store.remote
    with remote_lock(remote, uri) if remote else local_lock(store.path(uri)):
        yield


@dataclass(frozen=True, slots=True)
class Clock:
    """A clock: `now` returns a monotonic time in seconds, and `sleep` waits for a time in seconds.

    Tests replace both functions.
    """

    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class Held:
    """The content of a lock object: `Held('"9f2c"', Owner("node7", ...), 7, released=False)`.

    - `tag`: the ETag of the object, or empty if the object is missing
    - `owner`: the process that owns the lock, or None if the object is damaged
    - `fence`: the fencing number, which each takeover of the lock increases
    - `released`: whether the owner has released the lock
    """

    tag: str
    owner: Owner | None
    fence: int
    released: bool

    @property
    def sure(self) -> bool:
        """Whether the owner of the lock was started on this machine after the last boot.

        If False, this process cannot check whether the owner is alive.
        """
        return self.owner is not None and self.owner.here

    @property
    def free(self) -> bool:
        """Whether the lock is released, or its owner is certainly dead."""
        return self.released or (self.sure and self.owner is not None and not self.owner.alive)


class Lease:
    """Access to the lock object of a run, for a process that owns the lock or wants to take it."""

    def __init__(self, remote: Remote, uri: str, clock: Clock = Clock()) -> None:
        self.remote, self.uri, self.clock = remote, uri, clock
        self.address = f"{remote.uri}/{uri}"
        self.owner = Owner.current()
        self.stop = threading.Event()
        self.fence = self.beats = 0

    def look(self) -> Held:
        """Read the lock object.

        If the object is damaged, a warning is logged and `owner` is None.
        """
        content, tag = self.remote.tagged(self.uri) or (b"", "")
        if not tag:
            return Held("", None, 0, released=True)
        try:
            return _read(content, tag)
        except ValueError as fault:
            logger.warning("Lock %s is damaged (%s): its owner is unknown.", self.address, fault)
            return Held(tag, None, 0, released=False)

    def awaited(self) -> Held:
        """Wait until the lock may be taken, and return the content of the lock object.

        If the owner is a running process of this machine, this method raises Locked without
        waiting. If the owner is on another machine, this method watches the lock for EXPIRY
        seconds. It raises Locked if the owner renews the lock in this time. Otherwise the owner
        counts as dead, and the lock may be taken.
        """
        first = lock = self.look()
        while not lock.free:
            # a changed tag means a renewal, so the owner is alive
            if lock.sure or lock.tag != first.tag:
                raise locked(self._run, in_words(lock.owner))
            seen = (self.address, lock.tag)
            if seen not in _since:
                # time is measured by the clock of this process, because the clocks of other
                # machines and of the storage may differ
                _since[seen] = self.clock.now()
                logger.warning(
                    "The run %r is held by %s, which may be dead. This process watches the lock "
                    "for up to %g s, and takes over the run if the lock is not renewed.",
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
        """Create the lock, or take it over if it was released or its owner is dead.

        If the owner is on another machine, the lock is taken over after EXPIRY seconds without a
        renewal. Raises Locked if another live process holds the lock.
        """
        lock = self.awaited()
        # The write succeeds only if the object still has the tag just read. If two processes try to
        # take the lock at the same time, only one of them succeeds.
        self.fence = lock.fence + 1
        text, remote, tag = self._text(released=False), self.remote, lock.tag
        taken = remote.replace(self.uri, text, tag) if tag else remote.create(self.uri, text)
        if not taken:
            raise locked(self._run, in_words(None))

    def keep(self) -> None:
        """Renew the lock at regular intervals until the event `stop` is set."""
        while not self.stop.wait(HEARTBEAT):
            self._write(released=False)

    def check(self) -> None:
        """Raise LockLost if this process no longer owns the lock."""
        mine = False
        with suppress(ValueError):
            mine = self._mine(self.remote.content(self.uri))
        if not mine:
            raise LockLost(
                f"This process no longer owns the lock {self.address}, so it stops writing. "
                "Another process took over the run, or the lock was removed or damaged."
            )

    def release(self) -> None:
        """Mark the lock object as released.

        The object is kept, because the next owner increases the fencing number in it.
        """
        self._write(released=True)

    @property
    def claim(self) -> dict[str, JSON]:
        """The argument `claim` of the function `guard`: the lock's path, owner and fencing number
        (a counter of takeovers).
        """
        return {"uri": self.uri, "owner": self.owner.to_json(), "fence": self.fence}

    @property
    def _run(self) -> str:
        return Path(self.uri).parent.name

    def _write(self, released: bool) -> None:
        try:
            content, tag = self.remote.tagged(self.uri) or (None, "")
            # the write below fails if the object has a different tag, which means that another
            # process has taken over the lock
            if self._mine(content):
                self.remote.replace(self.uri, self._text(released), tag)
        except Exception as error:  # after any error the next heartbeat tries again
            logger.warning("The lock %s was not renewed: %s", self.address, error)

    def _mine(self, content: bytes | None) -> bool:
        if content is None:
            return False
        held = _read(content, "")
        return (held.owner, held.fence) == (self.owner, self.fence)

    def _text(self, released: bool) -> str:
        # with `beat`, each renewal changes the object and its ETag; `renewed` is for human readers
        self.beats += 1
        state = {"fence": self.fence, "beat": self.beats, "renewed": time.time()}
        return json.dumps({"owner": self.owner.to_json(), **state, "released": released})


def _read(content: bytes, tag: str) -> Held:
    """Parse the content of a lock object. Raises ValueError if it is damaged."""
    match strict_json.parse(content.decode()):
        case {"owner": owner, "fence": int(fence), "released": bool(released)}:
            return Held(tag, Owner.of(owner), fence, released)
    raise ValueError("expected the keys owner, fence and released")
