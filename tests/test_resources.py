from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from agentfly_core.environment import Environment, ServiceFailure
from agentfly_core.record import Problem
from agentfly_core.resources import LeaseExpired, LeaseTimeout, Limit, ResourceManager

ONE, TWO = Problem("one", "?"), Problem("two", "?")


class Room(Environment):
    """Writes down what happens to it."""

    made: ClassVar[list[Room]] = []

    def __init__(self) -> None:
        self.events: list[str] = []
        self.made.append(self)

    async def start(self) -> None:
        self.events.append("start")

    async def reset(self, problem: Problem) -> None:
        self.events.append(f"reset {problem.id}")

    async def close(self) -> None:
        self.events.append("close")


class Hall(Room): ...


class Once(Room):
    max_uses = 1


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    Room.made.clear()


def broken(**methods: Callable[..., Any]) -> type[Room]:
    return type("Broken", (Room,), methods)


def events() -> list[list[str]]:
    return [room.events for room in Room.made]


async def test_an_environment_is_started_once_reset_before_each_lease_and_closed_at_the_end() -> None:
    async with ResourceManager({Room: 1}) as resources:
        for problem in (ONE, TWO):
            async with resources.lease(Room, problem, 30) as room:
                assert isinstance(room, Room)
    assert events() == [["start", "reset one", "reset two", "close"]]


async def test_never_more_than_the_limit_are_lent_and_the_first_to_come_is_the_first_served() -> None:
    order: list[int] = []
    arrived, leave = [asyncio.Event() for _ in range(5)], [asyncio.Event() for _ in range(5)]

    async def visit(number: int) -> None:
        async with resources.lease(Room, Problem(str(number), "?"), 30):
            order.append(number)
            arrived[number].set()
            await leave[number].wait()

    async with ResourceManager({Room: 2}) as resources, asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(visit(number))
        for number in range(5):
            await arrived[number].wait()
            assert resources.metrics()["resources/Room/in_use"] <= 2
            leave[number].set()
    found = resources.metrics()
    assert [found[f"resources/Room/{name}"] for name in ("in_use", "most_in_use", "most_waiting")] == [0, 2, 3]
    assert order == [0, 1, 2, 3, 4]
    assert len(Room.made) == 2


async def test_a_wait_ends_with_a_typed_error_that_tells_the_queue() -> None:
    async with ResourceManager({Room: 1}) as resources, resources.lease(Room, ONE, 30):
        patient = asyncio.create_task(resources.lease(Room, TWO, 30).__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(LeaseTimeout, match=r"Room: none of 1 became free within 0\.01 s, 1 others are waiting"):
            async with resources.lease(Room, TWO, 0.01):
                pass
        patient.cancel()
        await asyncio.gather(patient, return_exceptions=True)


async def test_waiting_in_vain_or_being_cancelled_takes_no_slot() -> None:
    async with ResourceManager({Room: 1}) as resources:
        async with resources.lease(Room, ONE, 30):
            waiting = asyncio.create_task(resources.lease(Room, TWO, 30).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        async with resources.lease(Room, TWO, 0.5) as room:
            assert room.events == ["start", "reset one", "reset two"]


async def test_a_cancelled_start_frees_its_slot_and_closes_what_it_started() -> None:
    starting, go_on = asyncio.Event(), asyncio.Event()

    async def start(self: Room) -> None:
        starting.set()
        await go_on.wait()
        self.events.append("start")

    kind = broken(start=start)
    async with ResourceManager({kind: 1}) as resources:
        cancelled = asyncio.create_task(resources.lease(kind, ONE, 30).__aenter__())
        await starting.wait()
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        go_on.set()
        async with resources.lease(kind, TWO, 30):
            assert events() == [["start", "reset one", "close"], ["start", "reset two"]]
    assert resources.metrics()["resources/Broken/started"] == 2


async def test_closing_waits_for_a_start_that_nobody_waits_for_any_more() -> None:
    starting, go_on = asyncio.Event(), asyncio.Event()

    async def start(self: Room) -> None:
        starting.set()
        await go_on.wait()

    kind = broken(start=start)
    async with ResourceManager({kind: 1}) as resources:
        cancelled = asyncio.create_task(resources.lease(kind, ONE, 30).__aenter__())
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
        with pytest.raises(ServiceFailure, match="Broken could not be started: OSError: no port"):
            async with resources.lease(kind, ONE, 30):
                pass
        async with resources.lease(kind, TWO, 30):
            pass
    assert events() == [["close"], ["reset two", "close"]]


async def test_an_instance_whose_reset_fails_is_replaced_and_never_lent() -> None:
    async def reset(self: Room, problem: Problem) -> None:
        if problem is TWO and self is self.made[0]:
            raise RuntimeError("stuck")
        self.events.append(f"reset {problem.id}")

    kind = broken(reset=reset)
    async with ResourceManager({kind: 1}) as resources:
        async with resources.lease(kind, ONE, 30):
            pass
        async with resources.lease(kind, TWO, 30) as room:
            assert room is Room.made[1]
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]
    assert resources.metrics()["resources/Broken/resets_failed"] == 1


async def test_a_reset_that_hangs_is_the_services_fault() -> None:
    async def reset(self: Room, problem: Problem) -> None:
        await asyncio.Event().wait()

    kind = broken(reset=reset)
    async with ResourceManager({kind: 1}) as resources:
        with pytest.raises(ServiceFailure, match=r"no result within 0\.01 s"):
            async with resources.lease(kind, ONE, 0.01):
                pass
    assert events() == [["start", "close"]]


async def test_a_reset_that_cancels_itself_is_the_services_fault_and_nobodys_cancellation() -> None:
    async def reset(self: Room, problem: Problem) -> None:
        raise asyncio.CancelledError

    kind = broken(reset=reset)
    async with ResourceManager({kind: 1}) as resources:
        with pytest.raises(ServiceFailure, match="cancelled from within"):
            async with resources.lease(kind, ONE, 30):
                pass


async def unwell(self: Room) -> bool:
    return False


async def unsure(self: Room) -> bool:
    raise OSError("gone")


@pytest.mark.parametrize("healthy", [unwell, unsure])
async def test_an_unhealthy_instance_is_closed_and_never_lent_again(healthy: Callable[[Room], Any]) -> None:
    kind = broken(healthy=healthy)
    async with ResourceManager({kind: 1}) as resources:
        for problem in (ONE, TWO):
            async with resources.lease(kind, problem, 30):
                pass
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]


async def test_a_spoilt_instance_is_closed_and_never_lent_again() -> None:
    async with ResourceManager({Room: 1}) as resources:
        async with resources.lease(Room, ONE, 30) as room:
            room.spoilt = True
        async with resources.lease(Room, TWO, 30) as other:
            assert other is not room
            assert room.events[-1] == "close"


async def test_an_episode_that_raises_leaves_its_instance_closed_and_its_slot_free() -> None:
    async with ResourceManager({Room: 1}) as resources:
        with pytest.raises(KeyError):
            async with resources.lease(Room, ONE, 30):
                raise KeyError
        assert events() == [["start", "reset one", "close"]]
        async with resources.lease(Room, TWO, 30):
            pass


async def test_an_episode_cancelled_while_it_closes_its_instance_still_frees_the_slot() -> None:
    closing, go_on = asyncio.Event(), asyncio.Event()

    async def close(self: Room) -> None:
        closing.set()
        await go_on.wait()
        self.events.append("close")

    kind = broken(close=close)

    async def visit() -> None:
        async with resources.lease(kind, ONE, 30):
            raise KeyError

    async with ResourceManager({kind: 1}) as resources:
        visitor = asyncio.create_task(visit())
        await closing.wait()
        visitor.cancel()
        await asyncio.gather(visitor, return_exceptions=True)
        go_on.set()
        async with resources.lease(kind, TWO, 30):
            assert events() == [["start", "reset one", "close"], ["start", "reset two"]]


async def test_a_close_that_raises_harms_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    async def close(self: Room) -> None:
        raise BrokenPipeError("already dead")

    kind = broken(close=close)
    async with ResourceManager({kind: 1}) as resources, resources.lease(kind, ONE, 30):
        pass
    assert resources.metrics()["resources/Broken/closes_failed"] == 1
    assert "was not closed well: BrokenPipeError: already dead" in caplog.text


async def test_closing_while_something_is_lent_names_the_leak() -> None:
    resources = ResourceManager({Room: 2})
    lease = resources.lease(Room, ONE, 30)
    await lease.__aenter__()
    with pytest.raises(RuntimeError, match="Room: 1 were started and 0 closed; still there: leased for one"):
        await resources.close()
    await lease.__aexit__(None, None, None)
    await resources.close()
    assert events() == [["start", "reset one", "close"]]


async def test_two_kinds_are_each_lent_as_what_they_are() -> None:
    async with (
        ResourceManager({Room: 1, Hall: 1}) as resources,
        resources.lease(Room, ONE, 30) as room,
        resources.lease(Hall, ONE, 30) as hall,
    ):
        assert (type(room), type(hall)) == (Room, Hall)


async def test_a_kind_without_a_limit_is_refused() -> None:
    async with ResourceManager({Room: 1}) as resources:
        with pytest.raises(ValueError, match="no limit for Hall"):
            async with resources.lease(Hall, ONE, 30):
                pass


def test_each_event_loop_may_have_its_own() -> None:
    async def visit() -> None:
        async with ResourceManager({Room: 1}) as resources, resources.lease(Room, ONE, 30):
            pass

    for _ in range(2):
        asyncio.run(visit())
    assert events() == [["start", "reset one", "close"]] * 2


async def test_a_warm_pool_starts_its_environments_at_the_same_time_and_before_the_first_lease() -> None:
    together = asyncio.Barrier(3)  # opens only when three stand at it

    async def start(self: Room) -> None:
        await together.wait()
        self.events.append("start")

    kind = broken(start=start)
    async with ResourceManager({kind: 3}) as resources:
        resources.warm([kind], 8, 30)
        async with resources.lease(kind, ONE, 30):
            pass
    assert [room.events[0] for room in Room.made] == ["start"] * 3
    assert events().count(["start", "reset one", "close"]) == 1
    found = resources.metrics()
    assert (found["resources/Broken/started"], found["resources/Broken/closed"]) == (3, 3)


async def test_who_leases_while_others_start_takes_one_of_them() -> None:
    async with ResourceManager({Room: 8}) as resources:
        resources.warm([Room], 2, 30)
        async with resources.lease(Room, ONE, 30), resources.lease(Room, TWO, 30):
            pass
    assert sorted(events()) == [["start", "reset one", "close"], ["start", "reset two", "close"]]


async def test_no_more_are_warmed_than_are_asked_for() -> None:
    async with ResourceManager({Room: 8}) as resources:
        resources.warm([Room], 2, 30)
    assert events() == [["start", "close"]] * 2


@pytest.mark.parametrize("fails", ["start", "__init__"])
async def test_what_could_not_be_warmed_is_started_by_the_lease_that_needs_it(fails: str) -> None:
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
        resources.warm([kind], 1, 30)
        async with resources.lease(kind, ONE, 30) as room:
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
async def test_an_instance_is_replaced_after_its_uses_or_its_lifetime(limit: Limit, uses: list[int]) -> None:
    async with ResourceManager({Room: limit}) as resources:
        for _ in range(3):
            async with resources.lease(Room, ONE, 30):
                pass
    assert events() == [["start", *["reset one"] * count, "close"] for count in uses]


async def test_a_kind_that_says_so_is_lent_once_whatever_the_experiment_allows() -> None:
    async with ResourceManager({Once: Limit(1, max_uses=100)}) as resources:
        for problem in (ONE, TWO):
            async with resources.lease(Once, problem, 30):
                pass
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]


async def test_at_its_deadline_the_holder_is_cancelled_and_what_it_held_of_each_kind_is_closed() -> None:
    async with ResourceManager({Room: 1, Hall: 1}) as resources:
        with pytest.raises(LeaseExpired, match=r"no ending within 0\.01 s, the agent's deadline"):
            async with resources.leases([Room, Hall], ONE, 30, deadline=0.01):
                await asyncio.Event().wait()
        assert events() == [["start", "reset one", "close"]] * 2
        async with resources.leases([Room, Hall], TWO, 30, deadline=30):
            pass
    found = resources.metrics()
    assert [found[f"resources/{kind}/expired"] for kind in ("Room", "Hall")] == [1, 1]
    assert [found[f"resources/{kind}/closed"] for kind in ("Room", "Hall")] == [2, 2]


async def test_a_holder_that_does_not_listen_keeps_a_closed_instance_and_nobody_waiting() -> None:
    served = asyncio.Event()

    async def deaf() -> str:
        async with resources.lease(Room, ONE, 30, deadline=0.01) as room:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await served.wait()  # until somebody else was lent one
            return room.events[-1]

    async with ResourceManager({Room: 1}) as resources, asyncio.TaskGroup() as group:
        holder = group.create_task(deaf())
        await asyncio.sleep(0)
        async with resources.lease(Room, TWO, 30) as other:
            assert [other.events, Room.made[0].events[-1]] == [["start", "reset two"], "close"]
            served.set()
            assert await holder == "close"
            assert other.events == ["start", "reset two"]
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]


async def test_a_timeout_of_the_episodes_own_is_no_expired_lease() -> None:
    async with ResourceManager({Room: 1}) as resources:
        with pytest.raises(TimeoutError):
            async with resources.lease(Room, ONE, 30, deadline=30):
                raise TimeoutError
    assert resources.metrics()["resources/Room/expired"] == 0


async def test_episodes_that_need_the_same_kinds_in_any_order_never_wait_for_each_other() -> None:
    async def visit(number: int) -> None:
        kinds = [Room, Hall, Once][:: 1 if number % 2 else -1]
        async with resources.leases(kinds, Problem(str(number), "?"), 30) as lent:
            assert {type(env) for env in lent.values()} == {Room, Hall, Once}
            await asyncio.sleep(0)

    async with ResourceManager({Room: 1, Hall: 1, Once: 1}) as resources, asyncio.TaskGroup() as group:
        for number in range(50):
            group.create_task(visit(number))
    found = resources.metrics()
    assert [found[f"resources/{kind}/started"] for kind in ("Room", "Hall", "Once")] == [1, 1, 50]


async def test_whatever_goes_wrong_as_many_are_closed_as_were_started() -> None:
    """Starts, resets, health checks and holders fail, each in its own rhythm, and waiters give up."""

    class Moody(Room):
        async def start(self) -> None:
            if len(self.made) % 5 == 0:
                raise OSError("no port")

        async def reset(self, problem: Problem) -> None:
            if int(problem.id) % 7 == 0:
                raise RuntimeError("stuck")

        async def healthy(self) -> bool:
            return len(self.made) % 3 > 0

    async def visit(number: int) -> str:
        try:
            async with resources.lease(Moody, Problem(str(number), "?"), 30, deadline=30):
                await asyncio.sleep(0)
                if number % 11 == 0:
                    raise KeyError(number)
        except (ServiceFailure, KeyError) as error:
            return type(error).__name__
        return "played"

    async with ResourceManager({Moody: 4}) as resources:
        resources.warm([Moody], 4, 30)
        visits = [asyncio.create_task(visit(number)) for number in range(100)]
        await asyncio.sleep(0)
        for task in visits[::13]:
            task.cancel()
        ends = await asyncio.gather(*visits, return_exceptions=True)
    found = resources.metrics()
    assert found["resources/Moody/started"] == found["resources/Moody/closed"] == len(Room.made)
    assert found["resources/Moody/most_in_use"] <= 4
    kinds = {end if isinstance(end, str) else type(end).__name__ for end in ends}
    assert kinds == {"played", "ServiceFailure", "KeyError", "CancelledError"}
