"""The schedules of nights (nightly training runs), and scheduled nights that did not start."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, cast

from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.reports.nights.nights import PREFIX, date_of
from agentfly_core.system.formats.text import logged
from flows.nights.events import DEPLOYMENT, record

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import FlowRun

SCHEDULED = re.compile(r"scheduled \S+ \S+ (\d{4}-\d\d-\d\d)[T ]")
"""Matches the idempotency key of a scheduled flow run in Prefect.

The key contains the date on which the flow run starts, in the time zone of the schedule.
"""
DAY = timedelta(days=1)


def create_schedule(client: SyncPrefectClient) -> None:
    """If the deployment `nightly` lacks a schedule, create a daily schedule at 2:00 UTC.

    The new schedule is inactive until a user switches it on.
    """
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule

    deployment = client.read_deployment_by_name(DEPLOYMENT)
    if not deployment.schedules:
        cron = CronSchedule(cron="0 2 * * *", timezone="UTC")
        schedule = DeploymentScheduleCreate(schedule=cron, active=False)
        client.create_deployment_schedules(deployment.id, [schedule])


def scheduled_date(flow_run: FlowRun) -> date:
    """Return the date on which a flow run starts, in the time zone of its schedule.

    For a flow run without a schedule, the date is in the local time zone. The local date would not
    be unique for scheduled flow runs: two of them can have the same local date when clocks change.
    """
    if scheduled := SCHEDULED.match(flow_run.idempotency_key or ""):
        return date.fromisoformat(scheduled[1])
    return (flow_run.expected_start_time or datetime.now().astimezone()).astimezone().date()


def record_missed(ledger: NightLedger, today: date) -> None:
    """Append an entry `missed` to the ledger for each night that was scheduled but never began.

    Only nights between the last recorded night and `today` are considered.
    """
    entries = [entry for entry in ledger.read().entries if entry.event in ("began", "missed")]
    past = [night for entry in entries if (night := date_of(entry.night)) and night < today]
    if not past:
        return
    # one more day before and after, because the dates depend on the schedules' time zones
    since, until = (datetime.combine(day, time.min, UTC) for day in (max(past) - DAY, today + DAY))
    scheduled: list[date] = []
    with logged("Prefect could not list missed nights"):
        scheduled = scheduled_nights(ledger.experiment, since, until)
    for night in sorted({night for night in scheduled if max(past) < night < today}):
        why = f"The night was scheduled for {night}, but did not start."
        record(ledger, f"{PREFIX}{night}", "missed", why)


def scheduled_nights(experiment: str, since: datetime, until: datetime) -> list[date]:
    """Return the dates on which nights are scheduled, from the time `since` to the time `until`.

    A date is in the time zone of its schedule. Dates before the last change of a schedule are left
    out, because the schedule may have been switched off before.
    """
    from prefect.client.orchestration import get_client
    from prefect.server.schemas.schedules import SCHEDULE_TYPES
    from prefect.utilities.asyncutils import run_coro_as_sync
    from pydantic import TypeAdapter

    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(DEPLOYMENT)
    form = (deployment.parameter_openapi_schema or {}).get("properties", {})
    default = form.get("experiment", {}).get("default")
    nights = set()
    for schedule in deployment.schedules:
        parameters = {**deployment.parameters, **schedule.parameters}
        if schedule.active and parameters.get("experiment", default) == experiment:
            # only the server's class of a schedule can compute dates
            timetable = TypeAdapter(SCHEDULE_TYPES).validate_python(schedule.schedule.model_dump())
            first = max(since, schedule.updated or since)
            dates = run_coro_as_sync(timetable.get_dates(start=first, end=until))
            nights |= {moment.date() for moment in cast(list[datetime], dates)}
    return sorted(nights)
