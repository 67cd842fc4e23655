"""The lock of a run on object storage: renewal keeps it, measured by a clock that cannot be set."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from agentfly_core.store.lease import (
    EXPIRY,
    HEARTBEAT,
    Clock,
    Lease,
    guard,
    holder_in,
    refuse_if_held,
)
from agentfly_core.store.lock import Locked, LockLost
from agentfly_core.store.object_storage import Remote
from agentfly_core.store.store import Store
from agentfly_core.system.process import Owner
from tests.support.buckets import Bucket
from tests.support.clocks import Moved, set_clock

MINE = Owner.current()
ELSEWHERE = Owner("node7", 4711, 1763740000.25, "0c5d", 73512)


def held(owner: Owner, beat: int = 1, renewed: float = 1763740000.0) -> str:
    content = {
        "owner": owner.to_json(),
        "fence": 4,
        "beat": beat,
        "renewed": renewed,
        "released": False,
    }
    return json.dumps(content)


def lease(bucket: Bucket, moved: Moved, run: str) -> Lease:
    return Lease(cast(Remote, bucket), f"runs/{run}/lock.json", moved.clock)


@pytest.fixture
def run(request: pytest.FixtureRequest) -> str:
    """A separate run for each test, since watched locks are cached."""
    return str(request.node.name)


def test_the_lock_of_a_dead_local_owner_is_taken_at_once(run: str) -> None:
    bucket, moved = (
        Bucket({f"runs/{run}/lock.json": held(replace(MINE, ticks=MINE.ticks + 1))}),
        Moved(),
    )
    mine = lease(bucket, moved, run)
    mine.take()
    assert (mine.fence, moved.seconds) == (5, 0)


@pytest.mark.parametrize("hour", [3600, -3600])
def test_a_clock_change_keeps_the_run_of_a_living_owner(
    run: str, monkeypatch: pytest.MonkeyPatch, hour: int
) -> None:
    moved, bucket = Moved(), Bucket()
    lease(bucket, moved, run).take()
    set_clock(monkeypatch, hour)
    with pytest.raises(Locked, match=rf"'.*' .*held by process {MINE.pid} "):
        lease(bucket, moved, run).take()
    assert moved.seconds == 0


@pytest.mark.parametrize("renewed", [0.0, 4e9])
def test_a_renewing_remote_owner_keeps_its_lock_at_any_time(run: str, renewed: float) -> None:
    beats = iter([held(ELSEWHERE, 1, renewed)] * 3 + [held(ELSEWHERE, 2, renewed)])
    bucket = Bucket({f"runs/{run}/lock.json": held(ELSEWHERE, 1, renewed)})
    moved = Moved(lambda: bucket.update({f"runs/{run}/lock.json": next(beats)}))
    with pytest.raises(Locked, match="by process 4711 on node7"):
        lease(bucket, moved, run).take()
    assert moved.seconds <= HEARTBEAT


@pytest.mark.parametrize("renewed", [0.0, 4e9])
def test_a_silent_remote_owner_loses_its_lock_after_a_watch(
    run: str, renewed: float, caplog: pytest.LogCaptureFixture
) -> None:
    bucket, moved = Bucket({f"runs/{run}/lock.json": held(ELSEWHERE, 1, renewed)}), Moved()
    mine = lease(bucket, moved, run)
    mine.take()
    assert (moved.seconds, mine.fence) == (EXPIRY, 5)
    assert (
        "is held by process 4711 on node7, which may be dead. This process watches the lock for up "
        "to 120 s" in caplog.text
    )
    assert (
        f"The lock s3://bucket/runs/{run}/lock.json was not renewed for 120 s; this process takes "
        "over the run." in caplog.text
    )


def test_an_early_watch_of_a_lock_is_not_repeated(run: str) -> None:
    bucket, moved = Bucket({f"runs/{run}/lock.json": held(ELSEWHERE)}), Moved()
    lease(bucket, moved, run).awaited()
    assert moved.seconds == EXPIRY
    lease(bucket, moved, run).take()
    assert moved.seconds == EXPIRY


def test_an_uncertain_owner_is_watched(run: str) -> None:
    owner = replace(MINE, boot="another machine of this name")
    bucket, moved = Bucket({f"runs/{run}/lock.json": held(owner)}), Moved()
    lease(bucket, moved, run).take()
    assert moved.seconds == EXPIRY


def test_each_renewal_is_a_new_version_at_the_same_time(
    run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1763740000.0)
    bucket, seen = Bucket(), set()
    mine = lease(bucket, Moved(), run)
    mine.take()
    for _ in range(3):
        seen.add(bucket.tagged(mine.uri))
        mine._write(released=False)
    assert len(seen) == 3


@pytest.mark.parametrize(
    "damaged", ["", "\0" * 90, "\ufffd{}", "[]", held(ELSEWHERE)[:60], '{"fence": 1}']
)
def test_a_damaged_lock_is_named_and_watched(
    run: str, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    bucket, moved = Bucket({f"runs/{run}/lock.json": damaged}), Moved()
    mine = lease(bucket, moved, run)
    mine.take()
    assert moved.seconds == EXPIRY
    assert f"s3://bucket/runs/{run}/lock.json is damaged (" in caplog.text
    mine.check()


def test_a_damaged_lock_that_changes_is_held(run: str) -> None:
    bucket = Bucket({f"runs/{run}/lock.json": "[]"})
    moved = Moved(lambda: bucket.update({f"runs/{run}/lock.json": held(ELSEWHERE)}))
    with pytest.raises(Locked, match="held by process 4711 on node7"):
        lease(bucket, moved, run).take()


@pytest.mark.parametrize("damaged", ["", "\0" * 90, "[]"])
def test_an_owner_with_an_unreadable_lock_stops_writing(run: str, damaged: str) -> None:
    bucket = Bucket()
    mine = lease(bucket, Moved(), run)
    mine.take()
    bucket[mine.uri] = damaged
    mine.release()
    assert bucket[mine.uri] == damaged
    with pytest.raises(LockLost, match=r"no longer owns .* s3://bucket/runs/.*/lock\.json"):
        mine.check()


def test_a_takeover_has_the_next_number_and_warns_the_owner(run: str) -> None:
    bucket = Bucket()
    first = lease(bucket, Moved(), run)
    first.take()
    bucket[first.uri] = bucket[first.uri].replace(f'"pid": {MINE.pid}', '"pid": 999999')
    second = lease(bucket, Moved(), run)
    second.take()
    assert second.fence == 2
    second.check()
    first.release()
    assert not json.loads(bucket[first.uri])["released"]
    with pytest.raises(LockLost, match="no longer owns"):
        first.check()
    second.release()
    third = lease(bucket, Moved(), run)
    third.take()
    assert third.fence == 3


def test_a_worker_writes_only_while_its_session_holds_the_lock(run: str) -> None:
    bucket: Any = Bucket()
    session = lease(bucket, Moved(), run)
    session.take()
    guard(bucket, json.loads(json.dumps(session.claim)))
    bucket.guard()
    bucket[session.uri] = held(ELSEWHERE)
    with pytest.raises(LockLost, match="no longer owns"):
        bucket.guard()


def test_a_renewal_is_retried_after_a_network_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, run: str
) -> None:
    class Throttled(Bucket):
        beats = 0

        def replace(self, uri: str, text: str, tag: str) -> bool:
            self.beats += 1
            if self.beats == 1:
                raise OSError("SlowDown")
            mine.stop.set()
            return super().replace(uri, text, tag)

    monkeypatch.setattr("agentfly_core.store.lease.HEARTBEAT", 0)
    bucket = Throttled()
    mine = lease(bucket, Moved(), run)
    mine.take()
    mine.keep()
    assert bucket.beats == 2
    assert "was not renewed: SlowDown" in caplog.text
    mine.check()


def test_the_clock_of_the_store_decides_about_the_holder(run: str, tmp_path: Path) -> None:
    bucket: Any = Bucket({f"runs/{run}/lock.json": held(ELSEWHERE, renewed=4e9)})
    store = Store(tmp_path, bucket)
    for seconds, holder in ((30.0, "process 4711 on node7"), (300.0, "")):
        bucket.ages[f"runs/{run}/lock.json"] = seconds
        assert holder_in(store, f"runs/{run}") == holder
    bucket[f"runs/{run}/lock.json"] = held(MINE)
    assert holder_in(store, f"runs/{run}") == str(MINE), "it lives, so that it is only slow"
    bucket[f"runs/{run}/lock.json"] = "\0" * 90
    assert holder_in(store, f"runs/{run}") == ""
    assert holder_in(store, "runs/no-such") == ""
    with pytest.raises(Locked, match=f"process {MINE.pid}"):
        bucket[f"runs/{run}/lock.json"] = held(MINE)
        refuse_if_held(store, f"runs/{run}")


def test_a_removed_lock_is_released_silently(run: str, caplog: pytest.LogCaptureFixture) -> None:
    bucket = Bucket()
    mine = lease(bucket, Moved(), run)
    mine.take()
    bucket.clear()
    mine.release()
    assert (bucket, caplog.records) == ({}, [])
    with pytest.raises(LockLost, match="no longer owns"):
        mine.check()


def test_a_lease_is_watched_on_a_clock_that_cannot_be_set() -> None:
    assert Clock().now is time.monotonic
