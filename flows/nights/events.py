"""Prefect events about nights, from which automations make messages, and requests for approval."""

from __future__ import annotations

import logging

from agentfly_core.reports.nights.night_ledger import (
    EntryDetails,
    NightEntry,
    NightEvent,
    NightLedger,
)
from agentfly_core.system.formats.foreign_names import storable
from agentfly_core.system.formats.text import fault, redact

PREFIX = "agentfly.night."
APPROVAL = "promote/promote"
logger = logging.getLogger(__name__)


def record(
    ledger: NightLedger, night: str, event: NightEvent, why: str, details: EntryDetails = None
) -> None:
    """Append an entry to the ledger, log and emit it."""
    logger.info("%s: %s", night, why)
    emit(ledger.experiment, ledger.append(night, event, why, details))


def emit(experiment: str, entry: NightEntry) -> None:
    """Emit an entry as the event `agentfly.night.<event>` to the Prefect API, if there is one."""
    try:
        from prefect.events import emit_event
        from prefect.settings import get_current_settings

        if get_current_settings().api.url is None:
            return  # or Prefect starts a server, which takes half a minute
        night, message = entry.night, storable(redact(entry.why))
        resource = {"prefect.resource.id": PREFIX + night, "prefect.resource.name": night}
        payload = {"night": night, "experiment": storable(experiment), "message": message}
        payload["what"] = entry.event
        emit_event(event=PREFIX + entry.event, resource=resource, payload=payload)
    except Exception:  # a night does not fail because of a message
        logger.exception("Prefect did not get the event %r of %s.", entry.event, entry.night)


def request_approval(ledger: NightLedger, night: str, site: str) -> None:
    """Start a flow run of `promote`, which asks a person; never raises."""
    from prefect.deployments import run_deployment

    question = {"experiment": ledger.experiment, "run": night}
    question |= {"site": site, "store": ledger.store.uri}
    try:
        run_deployment(APPROVAL, parameters=question, timeout=0, as_subflow=False)
    except Exception as error:  # the night is played all the same
        logger.warning(
            "Nobody is asked in the Prefect UI about the policy of %s: %s. To promote it: agentfly "
            "promote %s",
            *(night, fault(error), night),
        )
