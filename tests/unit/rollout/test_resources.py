import asyncio

import pytest

from agentfly_core.authoring.environment import ServiceFailure
from agentfly_core.records.trajectory import Problem
from agentfly_core.rollout.pool import LeaseTimeout
from agentfly_core.rollout.resources import LeaseExpired, ResourceManager
from tests.support.rooms import ONE, TWO, Hall, Once, Room, events, lease
from tests.support.waiting import LIMIT


@pytest.fixture(autouse=True)
def _nothing_made() -> None:
    Room.made.clear()


async def test_an_environment_starts_once_and_is_reset_before_each_lease() -> None:
    async with ResourceManager({Room: 1}) as resources:
        for problem in (ONE, TWO):
            async with lease(resources, Room, problem, LIMIT) as room:
                assert isinstance(room, Room)
    assert events() == [["start", "reset one", "reset two", "close"]]


async def test_leases_stay_within_the_limit_in_order_of_arrival() -> None:
    order: list[int] = []
    arrived, leave = [asyncio.Event() for _ in range(5)], [asyncio.Event() for _ in range(5)]

    async def visit(number: int) -> None:
        async with lease(resources, Room, Problem(str(number), "?"), LIMIT):
            order.append(number)
            arrived[number].set()
            await leave[number].wait()

    async with ResourceManager({Room: 2}) as resources, asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(visit(number))
        for number in range(5):
            await arrived[number].wait()
            leave[number].set()
    found = resources.metrics()
    assert [
        found[f"resources/Room/{name}"] for name in ("in_use", "most_in_use", "most_waiting")
    ] == [0, 2, 3]
    assert order == [0, 1, 2, 3, 4]
    assert len(Room.made) == 2


async def test_a_wait_ends_with_a_typed_error_that_tells_the_queue() -> None:
    async with ResourceManager({Room: 1}) as resources, lease(resources, Room, ONE, LIMIT):
        patient = asyncio.create_task(lease(resources, Room, TWO, LIMIT).__aenter__())
        await asyncio.sleep(0)
        with pytest.raises(
            LeaseTimeout,
            match=r"Room: no environment became free within 0\.01 s. Limit: 1, other waiting "
            "episodes: 1",
        ):
            async with lease(resources, Room, TWO, 0.01):
                pass
        patient.cancel()
        await asyncio.gather(patient, return_exceptions=True)


async def test_waiting_in_vain_or_being_cancelled_takes_no_slot() -> None:
    async with ResourceManager({Room: 1}) as resources:
        async with lease(resources, Room, ONE, LIMIT):
            waiting = asyncio.create_task(lease(resources, Room, TWO, LIMIT).__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        async with lease(resources, Room, TWO, 0.5) as room:
            assert room.events == ["start", "reset one", "reset two"]


async def test_closing_while_something_is_lent_names_the_leak() -> None:
    resources = ResourceManager({Room: 2})
    held = lease(resources, Room, ONE, LIMIT)
    await held.__aenter__()
    with pytest.raises(
        RuntimeError,
        match=r"Room: .* 1 environment\. .*: one",
    ):
        await resources.close()
    await held.__aexit__(None, None, None)
    await resources.close()
    assert events() == [["start", "reset one", "close"]]


async def test_what_is_measured_is_of_the_time_since_it_was_asked_for_last() -> None:
    async with ResourceManager({Room: 2}) as resources:
        for problem in (ONE, TWO):
            async with (
                lease(resources, Room, problem, LIMIT),
                lease(resources, Room, problem, LIMIT),
            ):
                pass
            found = resources.metrics()
            assert found["resources/Room/started"] == (2 if problem is ONE else 0)
            assert found["resources/Room/most_in_use"] == 2
        assert set(resources.metrics().values()) == {0}


async def test_two_kinds_are_each_lent_as_what_they_are() -> None:
    async with (
        ResourceManager({Room: 1, Hall: 1}) as resources,
        lease(resources, Room, ONE, LIMIT) as room,
        lease(resources, Hall, ONE, LIMIT) as hall,
    ):
        assert (type(room), type(hall)) == (Room, Hall)


def test_each_event_loop_may_have_its_own() -> None:
    async def visit() -> None:
        async with ResourceManager({Room: 1}) as resources, lease(resources, Room, ONE, LIMIT):
            pass

    for _ in range(2):
        asyncio.run(visit())
    assert events() == [["start", "reset one", "close"]] * 2


async def test_at_its_deadline_a_holder_loses_all_environments() -> None:
    async with ResourceManager({Room: 1, Hall: 1}) as resources:
        with pytest.raises(LeaseExpired, match=r"did not end within its deadline of 0\.01 s"):
            async with resources.leases([Room, Hall], ONE, LIMIT, deadline=0.01):
                await asyncio.Event().wait()
        assert events() == [["start", "reset one", "close"]] * 2
        async with resources.leases([Room, Hall], TWO, LIMIT, deadline=LIMIT):
            pass
    found = resources.metrics()
    assert [found[f"resources/{kind}/expired"] for kind in ("Room", "Hall")] == [1, 1]
    assert [found[f"resources/{kind}/closed"] for kind in ("Room", "Hall")] == [2, 2]


async def test_a_holder_deaf_to_cancellation_blocks_no_other_lease() -> None:
    served = asyncio.Event()

    async def deaf() -> str:
        async with lease(resources, Room, ONE, LIMIT, deadline=0.01) as room:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await served.wait()  # until another holder has one
            return room.events[-1]

    async with ResourceManager({Room: 1}) as resources, asyncio.TaskGroup() as group:
        holder = group.create_task(deaf())
        await asyncio.sleep(0)
        async with lease(resources, Room, TWO, LIMIT) as other:
            assert [other.events, Room.made[0].events[-1]] == [["start", "reset two"], "close"]
            served.set()
            assert await holder == "close"
            assert other.events == ["start", "reset two"]
    assert events() == [["start", "reset one", "close"], ["start", "reset two", "close"]]


async def test_a_timeout_of_the_episodes_own_is_no_expired_lease() -> None:
    async with ResourceManager({Room: 1}) as resources:
        with pytest.raises(TimeoutError):
            async with lease(resources, Room, ONE, LIMIT, deadline=LIMIT):
                raise TimeoutError
    assert resources.metrics()["resources/Room/expired"] == 0


async def test_episodes_that_lease_kinds_in_any_order_never_deadlock() -> None:
    async def visit(number: int) -> None:
        kinds = [Room, Hall, Once][:: 1 if number % 2 else -1]
        async with resources.leases(kinds, Problem(str(number), "?"), LIMIT) as lent:
            assert {type(env) for env in lent.values()} == {Room, Hall, Once}
            await asyncio.sleep(0)

    async with (
        ResourceManager({Room: 1, Hall: 1, Once: 1}) as resources,
        asyncio.TaskGroup() as group,
    ):
        for number in range(50):
            group.create_task(visit(number))
    found = resources.metrics()
    assert [found[f"resources/{kind}/started"] for kind in ("Room", "Hall", "Once")] == [1, 1, 50]


async def test_whatever_goes_wrong_as_many_are_closed_as_were_started() -> None:
    """Starts, resets, health checks and holders fail, each in a rhythm, and waiters give up."""

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
            async with lease(resources, Moody, Problem(str(number), "?"), LIMIT, deadline=LIMIT):
                await asyncio.sleep(0)
                if number % 11 == 0:
                    raise KeyError(number)
        except (ServiceFailure, KeyError) as error:
            return type(error).__name__
        return "played"

    async with ResourceManager({Moody: 4}) as resources:
        await resources.warm([Moody], 4, LIMIT)
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
