"""The automations of `automations.yaml`, which notify people through their own blocks.

The block `agentfly-alarms` receives failures, and `agentfly-notices` one message for each night
that ends as planned.
"""

from __future__ import annotations

import os
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.text import fault
from flows.local.doctor import Finding
from flows.local.prefect_server import answers, use
from flows.nights.deployment_schedule import DEPLOYMENT
from flows.nights.events import APPROVAL

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import BlockDocument

AUTOMATIONS = Path(__file__).with_name("automations.yaml")
ALARMS_BLOCK, NOTICES_BLOCK = "agentfly-alarms", "agentfly-notices"
LATE_S, SILENT_S = 1800, 600


def create_automations(late_s: int = LATE_S, silent_s: int = SILENT_S) -> None:
    """Create the automations that have a block, and remove the others."""
    from prefect.automations import Automation
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
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
    """Return the blocks of a name that can send a message; blocks of several types may share it."""
    return [
        block
        for block in client.read_block_documents(include_secrets=False)
        if block.name == name and block.block_schema and "notify" in block.block_schema.capabilities
    ]


def nights(api: str, ping_url_env: str) -> Finding:
    """Check the schedule of nights, the block for alarms and the URL called after each night."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    if not api or not answers(api):
        detail, remedy = f"no Prefect server at {api or 'this project'}", "for nights: agentfly up"
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
    return Finding("nights", ok, detail, "see docs/how-to/nights.md, *Alarms*", needed=False)
