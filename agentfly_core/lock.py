"""One writer for each run: a lock that names its owner and that a dead owner cannot keep."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from agentfly_core.owner import Owner
from agentfly_core.remote import Remote

HEARTBEAT = 20.0
EXPIRY = 120.0
logger = logging.getLogger(__name__)


class Locked(RuntimeError):
    """Somebody else is writing this run; the message names them."""


class LockLost(RuntimeError):
    """Another process took this run over; nothing more may be written to it."""


def owner_of(folder: Path) -> Owner | None:
    """Who holds or last held the lock of a local run folder."""
    path = folder / "lock.json"
    text = path.read_text() if path.is_file() else ""
    return Owner.of(json.loads(text)) if text.strip() else None


@contextmanager
def local_lock(folder: Path) -> Iterator[Owner | None]:
    """Hold a run folder; yields its previous owner. Raises Locked while a living process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock.json").open("a+") as file:
        _lock(file, folder)
        previous = owner_of(folder)
        file.truncate(0)
        file.write(json.dumps(Owner.current().to_json()))
        file.flush()
        os.fsync(file.fileno())
        yield previous


def refuse_if_held(folder: Path) -> None:
    """Raise Locked while a living process holds a local run folder."""
    if (folder / "lock.json").is_file():
        with (folder / "lock.json").open() as file:
            _lock(file, folder)


def refuse_if_leased(remote: Remote, uri: str) -> None:
    """Raise Locked while a living process holds a run on object storage."""
    _Lease(remote, f"{uri}/lock.json").held()


def leaseholder(remote: Remote, uri: str) -> Owner | None:
    """Who holds a run on object storage; None where it was released, its owner is dead, or has not renewed it."""
    return _holder(json.loads(remote.read(f"{uri}/lock.json") or "{}"))


@contextmanager
def remote_lock(remote: Remote, uri: str) -> Iterator[Owner | None]:
    """Hold a run on object storage by a conditional write, renewed by a heartbeat; raises Locked.

    A lock whose owner is known to be dead, or has not been renewed for two minutes, is taken over under the next
    fencing number: from then on each write of `remote` by the one who lost it raises LockLost.
    """
    holder = _Lease(remote, f"{uri}/lock.json")
    previous = holder.take()
    beat = threading.Thread(target=holder.keep, name="run-lock", daemon=True)
    beat.start()
    remote.guard = holder.check
    try:
        yield previous
    finally:
        holder.stop.set()
        beat.join()
        holder.release()


class _Lease:
    """The lock object on the store, as this process holds it."""

    def __init__(self, remote: Remote, uri: str) -> None:
        self.remote, self.uri = remote, uri
        self.stop = threading.Event()
        self.fence = 0

    def held(self) -> tuple[dict[str, Any], str]:
        """What the lock object says, and its tag; empty where there is none. Raises Locked while its owner lives."""
        text, tag = self.remote.tagged(self.uri) or ("{}", "")
        held: dict[str, Any] = json.loads(text)
        if owner := _holder(held):
            raise Locked(_refusal(self.uri, owner))
        return held, tag

    def take(self) -> Owner | None:
        """Create or take over the lock; raises Locked."""
        held, tag = self.held()
        self.fence = int(held.get("fence", 0)) + 1
        text = self._text(released=False)
        if not (self.remote.replace(self.uri, text, tag) if held else self.remote.create(self.uri, text)):
            raise Locked(_refusal(self.uri, None))
        return Owner.of(held["owner"]) if held else None

    def keep(self) -> None:
        """Renew until told to stop."""
        while not self.stop.wait(HEARTBEAT):
            self._write(released=False)

    def check(self) -> None:
        """Raise LockLost when the run was taken over."""
        if not self._mine(self.remote.read(self.uri)):
            raise LockLost(f"{self.remote.uri}/{self.uri} was taken over by another process; this one stops writing.")

    def release(self) -> None:
        """Leave the lock free, keeping its fencing number."""
        self._write(released=True)

    def _write(self, released: bool) -> None:
        try:
            text, tag = self.remote.tagged(self.uri) or (None, "")
            if self._mine(text):
                self.remote.replace(self.uri, self._text(released), tag)
        except Exception as error:  # whatever the network does, the next beat tries again, and writes are guarded
            logger.warning("The lock %s/%s was not renewed: %s", self.remote.uri, self.uri, error)

    def _mine(self, text: str | None) -> bool:
        return text is not None and json.loads(text)["fence"] == self.fence

    def _text(self, released: bool) -> str:
        owner = Owner.current().to_json()
        return json.dumps({"owner": owner, "fence": self.fence, "renewed": time.time(), "released": released})


def _lock(file: IO[str], folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Locked(_refusal(folder.name, owner_of(folder))) from None
    if os.fstat(file.fileno()).st_nlink == 0:  # who held it has removed the run meanwhile
        raise Locked(_refusal(folder.name, None))


def _holder(held: dict[str, Any]) -> Owner | None:
    if not held or held["released"]:
        return None
    owner = Owner.of(held["owner"])
    return owner if owner.alive and (owner.here or time.time() - held["renewed"] < EXPIRY) else None


def _refusal(name: str, owner: Owner | None) -> str:
    who = f"held by {owner}" if owner else "held by another process"
    return f"The run {name!r} is {who}. Wait for it to end, end it, or start another run with --run NAME or --new."
