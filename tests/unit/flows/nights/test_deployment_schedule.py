"""Nights that should have been and were not."""

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from uuid import UUID

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.server.schemas.schedules import CronSchedule

from flows.nights.deployment_schedule import missed_nights, scheduled_date


def november(*days):
    return [date(2026, 11, day) for day in days]


def test_nights_between_the_last_one_and_today_were_missed():
    assert missed_nights(november(20, 21, 22, 23), november(19, 20), date(2026, 11, 23)) == (
        november(21, 22)
    )


def test_a_night_counts_once_however_often_it_was_scheduled_and_an_earlier_gap_is_past():
    scheduled = november(17, 18, 21, 21, 22)
    assert missed_nights(scheduled, november(16, 20), date(2026, 11, 22)) == november(21)


def test_without_a_schedule_none_was_missed():
    assert missed_nights([], november(20), date(2026, 11, 23)) == []


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine in New York, where the clock is put back on 1 November 2026."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


def flow_runs(cron: str, zone: str, start: datetime, days: int) -> list[FlowRun]:
    """Flow runs as Prefect's server makes them of a schedule."""
    schedule = CronSchedule(cron=cron, timezone=zone)
    dates = asyncio.run(schedule.get_dates(days, start=start))
    return [
        FlowRun(
            flow_id=UUID(int=0),
            idempotency_key=f"scheduled {UUID(int=1)} {UUID(int=2)} {moment}",
            expected_start_time=moment,
        )
        for moment in dates
    ]


def test_two_schedules_around_a_clock_change_are_two_nights(in_new_york: None) -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    first, second = flow_runs("0 4 * * *", "UTC", start, 2)
    assert [scheduled_date(first), scheduled_date(second)] == november(1, 2)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Australia/Lord_Howe"])
@pytest.mark.parametrize("hour", [0, 1, 4, 19, 23])
def test_each_night_of_a_year_has_a_date_of_its_own(
    in_new_york: None, zone: str, hour: int
) -> None:
    runs = flow_runs(f"30 {hour} * * *", zone, datetime(2026, 1, 1, tzinfo=UTC), 366)
    assert len({scheduled_date(run) for run in runs}) == 366


def test_a_flow_run_without_a_schedule_has_its_local_date(in_new_york: None) -> None:
    start = datetime(2026, 11, 2, 3, tzinfo=UTC)
    run = FlowRun(flow_id=UUID(int=0), expected_start_time=start)
    assert scheduled_date(run) == date(2026, 11, 1)
