import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import ResourceManager
from tests.support.rooms import ONE, TWO, Once, Room, broken, events, lease
from tests.support.signals import Signal
from tests.support.waiting import LIMIT


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    Room.made.clear()


async def test_a_cancelled_start_frees_its_slot_and_closes_what_it_started() -> None:
    starting, go_on = Signal(), Signal()

    async def start(self: Room) -> None:
        starting.set()
        await go_on.wait()
        self.events.append("start")

    kind = broken(start=start)
    async with ResourceManager({kind: 1}) as resources:
        cancelled = asyncio.create_task(lease(resources, kind, ONE, LIMIT).__aenter__())
        await starting.wait()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        go_on.set()
        async with lease(resources, kind, TWO, LIMIT):
            assert events() == [["start", "reset one", "close"], ["start", "reset two"]]
    assert resources.metrics()["resources/Broken/started"] == 2


async def test_closing_waits_for_a_start_that_nobody_waits_for_any_more() -> None:
    starting, go_on = Signal(), Signal()

    async def start(self: Room) -> None:
        starting.set()
        await go_on.wait()

    kind = broken(start=start)
    async with ResourceManager({kind: 1}) as resources:
        cancelled = asyncio.create_task(lease(resources, kind, ONE, LIMIT).__aenter__())
        await starting.wait()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        go_on.set()
    assert events() == [["reset one", "close"]]


async def test_a_failed_start_frees_its_slot_and_is_the_services_fault() -> None:
    async def start(self: Room) -> None:
        if len(self.made) == 1:
            raise OSError("no port")

    kind = broken(start=start)
    async with ResourceManager({kind: 1}) as resources:
        with pytest.raises(ServiceFailure, match=r"Broken .*OSError: no port"):
            async with lease(resources, kind, ONE, LIMIT):
                pass
        async with lease(resources, kind, TWO, LIMIT):
            pass
    assert events() == [["close"], ["reset two", "close"]]


async def test_an_instance_whose_reset_fails_is_replaced_and_never_lent() -> None:
    async def reset(self: Room, problem: Problem) -> None:
        if problem is TWO and self is self.made[0]:
            raise RuntimeError("stuck")
        self.events.append(f"reset {problem.id}")

    kind = broken(reset=reset)
    async with ResourceManager({kind: 1}) as resources:
        async with lease(resources, kind, ONE, LIMIT):
            pass
        async with lease(resources, kind, TWO, LIMIT) as room:
            assert room is Room.made[1]
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]
    assert resources.metrics()["resources/Broken/resets_failed"] == 1


async def test_a_reset_that_hangs_is_the_services_fault() -> None:
    async def reset(self: Room, problem: Problem) -> None:
        await asyncio.Event().wait()

    kind = broken(reset=reset)
    async with ResourceManager({kind: 1}) as resources:
        with pytest.raises(ServiceFailure, match=r"no result within 0\.01 s"):
            async with lease(resources, kind, ONE, 0.01):
                pass
    assert events() == [["start", "close"]]


async def test_an_environment_without_a_reset_says_what_to_define() -> None:
    class Bare(Environment): ...

    async with ResourceManager({Bare: 1}) as resources:
        with pytest.raises(ServiceFailure, match=r"Bare lacks reset\(\)"):
            async with lease(resources, Bare, ONE, LIMIT):
                pass


async def test_a_reset_that_cancels_itself_is_a_service_failure() -> None:
    async def reset(self: Room, problem: Problem) -> None:
        raise asyncio.CancelledError

    kind = broken(reset=reset)
    async with ResourceManager({kind: 1}) as resources:
        with pytest.raises(ServiceFailure, match="cancelled its own task"):
            async with lease(resources, kind, ONE, LIMIT):
                pass


async def unwell(self: Room) -> bool:
    return False


async def unsure(self: Room) -> bool:
    raise OSError("gone")


@pytest.mark.parametrize("healthy", [unwell, unsure])
async def test_an_unhealthy_instance_is_closed_and_never_lent_again(
    healthy: Callable[[Room], Any],
) -> None:
    kind = broken(healthy=healthy)
    async with ResourceManager({kind: 1}) as resources:
        for problem in (ONE, TWO):
            async with lease(resources, kind, problem, LIMIT):
                pass
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]


async def test_a_spoilt_instance_is_closed_and_never_lent_again() -> None:
    async with ResourceManager({Room: 1}) as resources:
        async with lease(resources, Room, ONE, LIMIT) as room:
            room.spoilt = True
        async with lease(resources, Room, TWO, LIMIT) as other:
            assert other is not room
            assert room.events[-1] == "close"


async def test_an_episode_that_raises_closes_its_instance() -> None:
    async with ResourceManager({Room: 1}) as resources:
        with pytest.raises(KeyError):
            async with lease(resources, Room, ONE, LIMIT):
                raise KeyError
        assert events() == [["start", "reset one", "close"]]
        async with lease(resources, Room, TWO, LIMIT):
            pass


async def test_an_episode_cancelled_during_close_frees_its_slot() -> None:
    closing, go_on = Signal(), Signal()

    async def close(self: Room) -> None:
        closing.set()
        await go_on.wait()
        self.events.append("close")

    kind = broken(close=close)

    async def visit() -> None:
        async with lease(resources, kind, ONE, LIMIT):
            raise KeyError

    async with ResourceManager({kind: 1}) as resources:
        visitor = asyncio.create_task(visit())
        await closing.wait()
        visitor.cancel()
        await asyncio.gather(visitor, return_exceptions=True)
        go_on.set()
        async with lease(resources, kind, TWO, LIMIT):
            assert events() == [["start", "reset one", "close"], ["start", "reset two"]]


async def test_a_close_that_raises_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def close(self: Room) -> None:
        raise BrokenPipeError("already dead")

    kind = broken(close=close)
    async with ResourceManager({kind: 1}) as resources, lease(resources, kind, ONE, LIMIT):
        pass
    measured = resources.metrics()
    assert [
        measured[f"resources/Broken/{name}"] for name in ("started", "closed", "closes_failed")
    ] == [1, 0, 1]
    assert "in close: BrokenPipeError: already dead" in caplog.text


async def test_a_warm_pool_starts_all_environments_before_the_first_lease() -> None:
    together = asyncio.Barrier(3)  # opens only when three stand at it

    async def start(self: Room) -> None:
        await together.wait()
        self.events.append("start")

    kind = broken(start=start)
    async with ResourceManager({kind: 3}) as resources:
        await resources.warm([kind], 8, LIMIT)
        async with lease(resources, kind, ONE, LIMIT):
            pass
    assert [room.events[0] for room in Room.made] == ["start"] * 3
    assert events().count(["start", "reset one", "close"]) == 1
    found = resources.metrics()
    assert (found["resources/Broken/started"], found["resources/Broken/closed"]) == (3, 3)


async def test_who_leases_while_others_start_takes_one_of_them() -> None:
    async with ResourceManager({Room: 8}) as resources:
        await resources.warm([Room], 2, LIMIT)
        async with lease(resources, Room, ONE, LIMIT), lease(resources, Room, TWO, LIMIT):
            pass
    assert sorted(events()) == [["start", "reset one", "close"], ["start", "reset two", "close"]]


async def test_no_more_are_warmed_than_are_asked_for() -> None:
    together = asyncio.Barrier(2)  # opens only when two stand at it
    both = Signal()

    async def start(self: Room) -> None:
        self.events.append("start")
        await together.wait()
        both.set()

    kind = broken(start=start)
    async with ResourceManager({kind: 8}) as resources:
        await resources.warm([kind], 2, LIMIT)
        await both.wait()
    assert events() == [["start", "close"]] * 2


async def test_warming_replaces_only_unhealthy_instances() -> None:
    ill: list[Room] = []

    async def healthy(self: Room) -> bool:
        return self not in ill

    kind = broken(healthy=healthy)
    async with ResourceManager({kind: 8}) as resources:
        await resources.warm([kind], 2, LIMIT)
        async with lease(resources, kind, ONE, LIMIT), lease(resources, kind, TWO, LIMIT):
            await resources.warm([kind], 2, LIMIT)
        ill.append(Room.made[0])
        await resources.warm([kind], 2, LIMIT)
        async with lease(resources, kind, TWO, LIMIT), lease(resources, kind, TWO, LIMIT):
            assert len(Room.made) == 3
    assert [room.events.count("start") for room in Room.made] == [1, 1, 1]
    assert sorted(len(room.events) for room in Room.made) == [3, 3, 4]


async def test_an_idle_instance_past_its_age_is_replaced_before_its_lease() -> None:
    started = Signal()

    async def start(self: Room) -> None:
        self.events.append("start")
        if len(self.made) == 2:
            started.set()

    kind = broken(start=start)
    async with ResourceManager({kind: Limit(1, lifetime=1e-9)}) as resources:
        while len(Room.made) < 2:  # the first has to be idle to be looked at
            await resources.warm([kind], 1, LIMIT)
            await asyncio.sleep(0)
        await started.wait()
        assert events() == [["start", "close"], ["start"]]


@pytest.mark.parametrize("fails", ["start", "__init__"])
async def test_an_instance_that_failed_to_warm_starts_at_its_lease(fails: str) -> None:
    attempts: list[Room] = []

    async def start(self: Room) -> None:
        fail_once(self)

    def fail_once(self: Room) -> None:
        self.events = []
        attempts.append(self)
        if len(attempts) == 1:
            raise OSError("no port")

    kind = broken(**{fails: start if fails == "start" else fail_once})
    async with ResourceManager({kind: 1}) as resources:
        await resources.warm([kind], 1, LIMIT)
        async with lease(resources, kind, ONE, LIMIT) as room:
            assert room is attempts[1]


@pytest.mark.parametrize(
    ("limit", "uses"),
    [
        (Limit(1), [3]),
        (Limit(1, max_uses=2), [2, 1]),
        (Limit(1, max_uses=1), [1, 1, 1]),
        (Limit(1, lifetime=3600), [3]),
        (Limit(1, lifetime=1e-9), [1, 1, 1]),
    ],
)
async def test_an_instance_is_replaced_after_its_uses_or_its_lifetime(
    limit: Limit, uses: list[int]
) -> None:
    async with ResourceManager({Room: limit}) as resources:
        for _ in range(3):
            async with lease(resources, Room, ONE, LIMIT):
                pass
    assert events() == [["start", *["reset one"] * count, "close"] for count in uses]


async def test_a_kind_with_a_limit_of_its_own_is_lent_once() -> None:
    async with ResourceManager({Once: Limit(1, max_uses=100)}) as resources:
        for problem in (ONE, TWO):
            async with lease(resources, Once, problem, LIMIT):
                pass
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]
