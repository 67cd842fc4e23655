"""The automations of `automations.yaml`, which notify people through their own blocks.

The block `agentfly-alarms` receives failures, and `agentfly-notices` one message for each night
that ends as planned.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from agentfly_core.system.formats import strict_yaml
from flows.local.doctor import Finding
from flows.local.prefect_server import answers, use
from flows.nights.asking import APPROVAL
from flows.nights.deployment_schedule import DEPLOYMENT

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import BlockDocument

AUTOMATIONS = Path(__file__).with_name("automations.yaml")
ALARMS_BLOCK, NOTICES_BLOCK = "agentfly-alarms", "agentfly-notices"
LATE_S, SILENT_S = 1800, 600
GUIDE = "see docs/nights.md, *Alarms*"
Blocks = Mapping[str, Sequence["BlockDocument"]]


def create_automations(late_s: int = LATE_S, silent_s: int = SILENT_S) -> Blocks:
    """Create the automations that have a block, and return the blocks by name."""
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
        blocks = blocks_by_name(client)
        automations: Any = strict_yaml.parse(text, str(AUTOMATIONS))
        for filled in automations:
            for old in client.read_automations_by_name(filled["name"]):
                client.delete_automation(old.id)
            receivers = blocks.get(filled.get("block", ""), [])
            actions = [_sending(block, filled["message"]) for block in receivers]
            if actions := filled.get("actions", actions):
                fields = {key: filled[key] for key in ("name", "trigger")}
                Automation.model_validate({**fields, "actions": actions}).create()
    return blocks


def blocks_by_name(client: SyncPrefectClient) -> Blocks:
    """Return the blocks that can send a message, by their names."""
    blocks = defaultdict[str, list["BlockDocument"]](list)
    for block in client.read_block_documents(include_secrets=False):
        notifies = block.block_schema and "notify" in block.block_schema.capabilities
        if block.name and (_is_webhook(block) or notifies):
            blocks[block.name].append(block)
    return blocks


def _sending(block: BlockDocument, message: str) -> dict[str, str]:
    """Return the action that sends a message: a webhook gets `{"text": ...}`, as chats read it."""
    if _is_webhook(block):
        text = '{"text": {% set text %}' + message + "{% endset %}{{ text|string|tojson }}}"
        return {"type": "call-webhook", "block_document_id": str(block.id), "payload": text}
    where = {"type": "send-notification", "block_document_id": str(block.id)}
    return {**where, "subject": "AgentFly", "body": message}


def _is_webhook(block: BlockDocument) -> bool:
    return block.block_type is not None and block.block_type.slug == "webhook"


def nights(api: str, ping_url_env: str) -> Finding:
    """Check the schedule of nights, the block for alarms and the URL called after each night."""
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError

    if not api or not answers(api):
        where = f"at {api}" if api else "of this project"
        return _missing(f"no Prefect server {where}", "for nights: agentfly up")
    use(api)
    try:
        with get_client(sync_client=True) as client:
            schedules = client.read_deployment_by_name(DEPLOYMENT).schedules
            alarmed = ALARMS_BLOCK in blocks_by_name(client)
    except ObjectNotFound:
        return _missing(f"no deployment nightly at {api}", "for nights: python -m flows.deploy")
    except PrefectHTTPStatusError as error:
        status = error.response.status_code
        return _missing(f"{api} answers {status}", "set PREFECT_API_AUTH_STRING to the server's")

    on, pinged = any(schedule.active for schedule in schedules), bool(os.environ.get(ping_url_env))
    called = f"the URL in {ping_url_env} is {'called' if pinged else 'NOT SET'} after each"
    detail = (
        f"schedule {'on' if on else 'off'} at {api}, {'a' if alarmed else 'no'} block "
        f"{ALARMS_BLOCK}, {called if ping_url_env else 'no ping_url_env'}"
    )
    ok = on and (alarmed or pinged) and (pinged or not ping_url_env)
    return Finding("nights", ok, detail, GUIDE, needed=False)


def _missing(detail: str, remedy: str) -> Finding:
    return Finding("nights", False, detail, remedy, needed=False)
