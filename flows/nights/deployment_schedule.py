"""The schedules of the deployment `nightly`: kept when it is deployed again, and compared with the
nights that were.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import DeploymentSchedule, FlowRun

DEPLOYMENT = "nightly/nightly"
SCHEDULED = re.compile(r"scheduled \S+ \S+ (\d{4}-\d\d-\d\d)[T ]")
"""Prefect's idempotency key of a flow run: deployment, schedule, start in the schedule's zone."""


def scheduled_date(flow_run: FlowRun) -> date:
    """The date of a flow run's scheduled start, in the time zone of its schedule.

    A daily schedule has each date once there. In another zone two starts may have the same date
    where the clock is put back. A flow run without a schedule has the local date of its start.
    """
    if scheduled := SCHEDULED.match(flow_run.idempotency_key or ""):
        return date.fromisoformat(scheduled[1])
    return (flow_run.expected_start_time or datetime.now().astimezone()).astimezone().date()


def missed_nights(scheduled: Iterable[date], nights: Collection[date], today: date) -> list[date]:
    """The scheduled nights after the last of `nights`, of which there is one, and before today.

    `missed_nights([20th, 21st, 22nd, 23rd], [20th], 23rd)` is `[21st, 22nd]`.
    """
    return sorted({night for night in scheduled if max(nights) < night < today})


def scheduled_nights(experiment: str, since: datetime, until: datetime) -> list[date]:
    """The dates, in the time zone of the schedule, on which an active schedule of the deployment
    `nightly` starts an experiment.

    A schedule counts from when it was last changed: while it was off it missed nothing. Raises
    what Prefect's client raises, where no server answers or nothing is deployed.
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
            # the client's kind of schedule cannot say its dates
            kind = TypeAdapter(SCHEDULE_TYPES).validate_python(schedule.schedule.model_dump())
            first = max(since, schedule.updated or since)
            dates = cast(list[datetime], run_coro_as_sync(kind.get_dates(start=first, end=until)))
            nights |= {moment.date() for moment in dates}
    return sorted(nights)


@contextmanager
def keeping_schedules() -> Iterator[None]:
    """Put back what deploying in the block does to the schedules of nights.

    `prefect deploy` switches each off that its file has as inactive, and may remove those that the
    file does not have, which were added in the UI.
    """
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        before = _schedules(client)
    yield
    with get_client(sync_client=True) as client:
        deployment = client.read_deployment_by_name(DEPLOYMENT).id
        after = _schedules(client)
        for schedule in before:
            slug = schedule.slug
            same = [now for now in after if now.id == schedule.id or (slug and now.slug == slug)]
            if same and same[0].active != schedule.active:
                client.update_deployment_schedule(deployment, same[0].id, active=schedule.active)
            elif not same:
                fields = {"schedule", "active", "parameters", "slug", "max_scheduled_runs"}
                again = schedule.model_dump(mode="json", include=fields, exclude_none=True)
                path = {"id": deployment}
                client.request(
                    "POST", "/deployments/{id}/schedules", path_params=path, json=[again]
                )


def _schedules(client: SyncPrefectClient) -> list[DeploymentSchedule]:
    from prefect.exceptions import ObjectNotFound

    try:
        return client.read_deployment_by_name(DEPLOYMENT).schedules
    except ObjectNotFound:
        return []
