"""Prefect events about nights (nightly training runs), requests for approval of a night's policy,
and the automations of `automations.yaml`.

The automations send notifications through blocks that the user creates in Prefect: failures go to
the block `agentfly-alarms`, and a message for each night that ends as planned goes to
`agentfly-notices`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from agentfly_core.reports.nights.night_ledger import (
    EntryDetails,
    NightEntry,
    NightEvent,
    NightLedger,
)
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.foreign_names import storable
from agentfly_core.system.formats.text import fault, logged, redact
from flows.local.doctor import Finding
from flows.local.prefect_server import answers, use

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import BlockDocument

PREFIX = "agentfly.night."
DEPLOYMENT, APPROVAL = "nightly/nightly", "promote/promote"
logger = logging.getLogger(__name__)
AUTOMATIONS = Path(__file__).with_name("automations.yaml")
ALARMS_BLOCK, NOTICES_BLOCK = "agentfly-alarms", "agentfly-notices"
LATE_S, SILENT_S = 1800, 600


def record(
    ledger: NightLedger, night: str, event: NightEvent, why: str, details: EntryDetails = None
) -> None:
    """Append an entry about a night (nightly training run) to the ledger. Also log `why`, and
    send the entry to Prefect as an event.
    """
    logger.info("%s: %s", night, why)
    emit(ledger.experiment, ledger.append(night, event, why, details))


def emit(experiment: str, entry: NightEntry) -> None:
    """Send an entry about a nightly run to Prefect as the event `agentfly.night.<event>`.

    Without a Prefect API, do nothing. If Prefect cannot be reached, the error is only logged.
    """
    with logged(f"The event {entry.event!r} of {entry.night} could not be sent to Prefect"):
        from prefect.events import emit_event
        from prefect.settings import get_current_settings

        if get_current_settings().api.url is None:
            return  # otherwise Prefect would start a server, which takes half a minute
        night, message = entry.night, storable(redact(entry.why))
        resource = {"prefect.resource.id": PREFIX + night, "prefect.resource.name": night}
        payload = {"night": night, "experiment": storable(experiment), "message": message}
        payload["what"] = entry.event
        emit_event(event=PREFIX + entry.event, resource=resource, payload=payload)


def request_approval(ledger: NightLedger, night: str, site: str) -> None:
    """Start a flow run of `promote`, in which a person approves or rejects a nightly run's policy.

    If Prefect fails, the error is only logged.
    """
    from prefect.deployments import run_deployment

    question = {"experiment": ledger.experiment, "run": night}
    question |= {"site": site, "store": ledger.store.uri}
    failure = f"Nobody is asked in the Prefect UI to approve the policy of {night}"
    with logged(f"{failure}. To promote the policy: agentfly promote {night}. The cause"):
        run_deployment(APPROVAL, parameters=question, timeout=0, as_subflow=False)


def create_automations(
    client: SyncPrefectClient, late_s: int = LATE_S, silent_s: int = SILENT_S
) -> None:
    """Create the Prefect automations of automations.yaml, after deleting their older versions.

    Some automations send messages through a Prefect block, such as a connection to Slack. They are
    created only if Prefect has this block. A message is sent if a nightly training run starts more
    than `late_s` seconds late. A flow run is marked Crashed after `silent_s` seconds without a
    heartbeat.
    """
    from prefect.automations import Automation

    text = Template(AUTOMATIONS.read_text()).substitute(
        nightly=client.read_deployment_by_name(DEPLOYMENT).id,
        promote=client.read_deployment_by_name(APPROVAL).id,
        late_minutes=f"{late_s / 60:g}",
        late_seconds=late_s,
        silent_seconds=silent_s,
    )
    automations: Any = strict_yaml.parse(text, str(AUTOMATIONS))
    for filled in automations:
        for old in client.read_automations_by_name(filled["name"]):
            client.delete_automation(old.id)
        messages = [
            {
                "type": "send-notification",
                "block_document_id": str(block.id),
                "subject": "AgentFly",
                "body": filled["message"],
            }
            for block in blocks(client, filled.get("block", ""))
        ]
        if actions := filled.get("actions", messages):
            fields = {key: filled[key] for key in ("name", "trigger")}
            Automation.model_validate({**fields, "actions": actions}).create()


def blocks(client: SyncPrefectClient, name: str) -> list[BlockDocument]:
    """Return the blocks in Prefect that have this name and can send messages.

    Several blocks can have the same name if their types differ.
    """
    return [
        block
        for block in client.read_block_documents(include_secrets=False)
        if block.name == name and block.block_schema and "notify" in block.block_schema.capabilities
    ]


def nights(api: str, ping_url_env: str) -> Finding:
    """Check that nights (nightly training runs) are scheduled, and that failures are reported.

    If `ping_url_env` is given, this environment variable must contain the URL that is called after
    each night. Otherwise Prefect must have the block `agentfly-alarms`, which sends messages. `api`
    is the address of the Prefect API.
    """
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    if not api or not answers(api):
        detail = f"no Prefect server answers at {api}" if api else "no Prefect server runs here"
        remedy = "for nights: agentfly up"
        return Finding("nights", False, detail, remedy, needed=False)
    use(api)
    try:
        with get_client(sync_client=True) as client:
            schedules = client.read_deployment_by_name(DEPLOYMENT).schedules
            alarmed = bool(blocks(client, ALARMS_BLOCK))
    except (ObjectNotFound, PrefectHTTPStatusError) as error:
        remedy = "python -m flows.deploy, with the server's PREFECT_API_AUTH_STRING"
        return Finding("nights", False, f"{api}: {fault(error)}", remedy, needed=False)
    on, pinged = any(schedule.active for schedule in schedules), bool(os.environ.get(ping_url_env))
    detail = (
        f"schedule {'on' if on else 'off'}, {'a' if alarmed else 'no'} block {ALARMS_BLOCK}, "
        f"{ping_url_env or 'ping_url_env'} {'set' if pinged else 'not set'}"
    )
    ok = on and (pinged or (alarmed and not ping_url_env))
    return Finding("nights", ok, detail, "see docs/how-to/nights.md", needed=False)
