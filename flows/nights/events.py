"""Prefect events about nights, from which automations make messages to people."""

from __future__ import annotations

import logging
from typing import Literal, TypeAlias

from agentfly_core.reports.nights.night_ledger import Champion, NightEvent, NightLedger
from agentfly_core.system.formats.foreign_names import storable
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.formats.text import redact

PREFIX = "agentfly.night."
What: TypeAlias = NightEvent | Literal["crashed", "no_space"]
logger = logging.getLogger(__name__)


def tell(what: What, night: str, experiment: str, message: str, **facts: JSON) -> None:
    """Emit the Prefect event `agentfly.night.<what>` about a night, in a flow with its flow run.

    `tell("given_up", "nightly-2026-11-21", "quickstart", "It was tried 3 times.", attempts=3)`.
    The message is whole sentences for a person. Returns at once; what Prefect refuses is logged. In
    a process without a Prefect API there is nobody to tell.
    """
    logger.info("%s: %s", night, message)
    try:
        from prefect.events import emit_event
        from prefect.settings import get_current_settings

        if get_current_settings().api.url is None:
            return  # or Prefect starts a server of its own for it, which takes half a minute
        text = storable(redact(message))
        payload = {
            "what": what,
            "night": night,
            "experiment": storable(experiment),
            "message": text,
        }
        resource = {"prefect.resource.id": PREFIX + night, "prefect.resource.name": night}
        emit_event(event=PREFIX + what, resource=resource, payload={**payload, **facts})
    except Exception:  # a night does not fail since a message about it could not be sent
        logger.exception("Prefect did not get the event that the night %s is %r.", night, what)


def write_and_tell(
    ledger: NightLedger, night: str, event: NightEvent, why: str, champion: Champion | None = None
) -> None:
    """Append what happened to the ledger, and tell it."""
    ledger.append(night, event, why, champion)
    tell(event, night, ledger.experiment, why)
