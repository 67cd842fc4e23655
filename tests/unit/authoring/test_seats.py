"""How many calls are made at a time."""

from __future__ import annotations

import asyncio
import threading

from agentfly_core.authoring.author_call import Seats
from tests.support.waiting import LIMIT


async def test_so_many_sit_at_a_time_and_the_longest_waiting_is_next() -> None:
    seats, order, enough = Seats(2), [], asyncio.Event()

    async def sit(name: str) -> None:
        async with seats:
            order.append(name)
            await enough.wait()

    async with asyncio.TaskGroup() as group:
        for name in "abcd":
            group.create_task(sit(name))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert order == ["a", "b"]
        enough.set()
    assert order == ["a", "b", "c", "d"]


async def test_who_gives_up_waiting_takes_no_seat_with_it() -> None:
    seats = Seats(1)
    await seats.__aenter__()
    gone, next_one = (asyncio.create_task(seats.__aenter__()) for _ in range(2))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    assert not next_one.done()
    await seats.__aexit__(None, None, None)
    await asyncio.wait_for(next_one, LIMIT)


async def test_who_is_cancelled_as_it_gets_a_seat_hands_it_on() -> None:
    seats = Seats(1)
    await seats.__aenter__()
    late, next_one = (asyncio.create_task(seats.__aenter__()) for _ in range(2))
    await asyncio.sleep(0)
    await seats.__aexit__(None, None, None)  # late has it, and is cancelled before it runs
    late.cancel()
    await asyncio.gather(late, return_exceptions=True)
    await asyncio.wait_for(next_one, LIMIT)


def test_seats_are_shared_by_event_loops() -> None:
    seats, inside, most = Seats(1), [0], [0]

    async def sit() -> None:
        for _ in range(20):
            async with seats:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                await asyncio.sleep(0)
                inside[0] -= 1

    threads = [threading.Thread(target=asyncio.run, args=(sit(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
