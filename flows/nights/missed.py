"""Scheduled nights that did not start: written down and reported when the next one starts."""

from __future__ import annotations

import logging
from datetime import UTC, date, datetime, time, timedelta

from agentfly_core.reports.nights.night_ledger import NightLedger
from agentfly_core.reports.nights.night_plan import PREFIX, date_of
from agentfly_core.system.formats.text import fault
from flows.nights.deployment_schedule import missed_nights, scheduled_nights
from flows.nights.events import write_and_tell

logger = logging.getLogger(__name__)


def note_missed(ledger: NightLedger, today: date) -> None:
    """Compare the deployment's schedule with the ledger; where Prefect cannot say it, log that."""
    nights = [entry for entry in ledger.entries() if entry.event in ("began", "missed")]
    dates = [date_of(entry.night) for entry in nights]
    past = [night for night in dates if night is not None and night < today]
    if not past:
        return
    day = timedelta(days=1)  # dates are in the schedules' time zones
    since, until = (
        datetime.combine(date, time.min, UTC) for date in (max(past) - day, today + day)
    )
    try:
        scheduled = scheduled_nights(ledger.experiment, since, until)
    except Exception as error:  # a night is played all the same
        logger.warning("It is not known which nights were missed: %s", fault(error))
        return
    for night in missed_nights(scheduled, past, today):
        why = f"It was scheduled for {night} and did not start; the schedule said so on {today}."
        write_and_tell(ledger, f"{PREFIX}{night}", "missed", why)
