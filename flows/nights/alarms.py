"""Automations of the Prefect server that tell people about nights, through the user's own blocks.

A block named `agentfly-alarms` is called where a person should look: a night that did not start,
failed, crashed, was given up, or got worse, and an approval that failed or crashed. A block named
`agentfly-notices` is called once a night that ends as planned: promoted, kept, awaiting approval,
not approved.

What ends a night's flow run is told by the state of the flow run, since a killed process tells
nothing itself; so the events `crashed` and `no_space` have no automation here, or each would be
told twice.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from flows.nights.asking import APPROVAL
from flows.nights.deployment_schedule import DEPLOYMENT
from flows.nights.events import PREFIX

if TYPE_CHECKING:
    from prefect.automations import Automation
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.objects import BlockDocument
    from prefect.events.actions import ActionTypes
    from prefect.events.schemas.automations import EventTrigger

ALARMS_BLOCK = "agentfly-alarms"
NOTICES_BLOCK = "agentfly-notices"
ALARMS = ("missed", "given_up", "worse")
NOTICES = ("promoted", "kept", "awaits_approval", "not_approved")
ENDINGS = ("Failed", "TimedOut", "Crashed")
LATE = timedelta(minutes=30)

OF_A_NIGHT = (
    "{{ event.payload['night'] }} of {{ event.payload['experiment'] }}, "
    "{{ event.payload['what']|replace('_', ' ') }}: {{ event.payload['message'] }}"
)
OF_A_FLOW_RUN = (
    "The flow run {{ event.resource['prefect.resource.name'] }} of %s is "
    "{{ event.resource['prefect.state-name'] }}: {{ event.resource['prefect.state-message'] }}"
)
OF_A_LATE_ONE = (
    "The flow run {{ flow_run.name }} of nightly has not started %g minutes after its time. "
    "Is a worker running? agentfly prefect worker start --pool agentfly"
)


def put(automation: Automation) -> None:
    """Make an automation, in place of the one of its name."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        _remove(client, automation.name)
    automation.create()


def tell_people(late: timedelta = LATE) -> dict[str, int]:
    """Make the automations whose blocks there are, remove the others; how many blocks each name
    has.
    """
    from prefect.automations import Automation
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        nightly, promote = (
            f"prefect.deployment.{client.read_deployment_by_name(name).id}"
            for name in (DEPLOYMENT, APPROVAL)
        )
        blocks = blocks_named(client)
        wanted = [
            (NOTICES_BLOCK, "AgentFly: how a night ended", _seen(PREFIX, NOTICES), OF_A_NIGHT),
            (ALARMS_BLOCK, "AgentFly: alarm of a night", _seen(PREFIX, ALARMS), OF_A_NIGHT),
        ]
        for name, deployment in (("nightly", nightly), ("promote", promote)):
            failed = _seen("prefect.flow-run.", ENDINGS, deployment)
            wanted.append((ALARMS_BLOCK, f"AgentFly: {name} failed", failed, OF_A_FLOW_RUN % name))
        message = OF_A_LATE_ONE % (late / timedelta(minutes=1))
        wanted.append((ALARMS_BLOCK, "AgentFly: nightly is late", _late(nightly, late), message))
        for name, title, trigger, text in wanted:
            _remove(client, title)
            if actions := [_sending(block, text) for block in blocks[name]]:
                Automation(name=title, trigger=trigger, actions=actions).create()
    return {name: len(documents) for name, documents in blocks.items()}


def blocks_named(client: SyncPrefectClient) -> dict[str, list[BlockDocument]]:
    """The blocks that can be called, by each of the two names."""
    blocks: dict[str, list[BlockDocument]] = {ALARMS_BLOCK: [], NOTICES_BLOCK: []}
    for block in client.read_block_documents(include_secrets=False):
        kind = block.block_schema
        notifies = kind is not None and "notify" in kind.capabilities
        if block.name in blocks and (_is_webhook(block) or notifies):
            blocks[block.name].append(block)
    return blocks


def _remove(client: SyncPrefectClient, name: str) -> None:
    for old in client.read_automations_by_name(name):
        client.delete_automation(old.id)


def _seen(prefix: str, events: tuple[str, ...], deployment: str = "") -> EventTrigger:
    """Each of these events of the resources of this prefix, of one deployment or any."""
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    related: dict[str, str | list[str]] = {"prefect.resource.id": deployment} if deployment else {}
    return EventTrigger(
        match=ResourceSpecification({"prefect.resource.id": f"{prefix}*"}),
        match_related=ResourceSpecification(related),
        expect={prefix + event for event in events},
        posture=Posture.Reactive,
        threshold=1,
    )


def _late(deployment: str, late: timedelta) -> EventTrigger:
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    return EventTrigger(
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        match_related=ResourceSpecification({"prefect.resource.id": deployment}),
        after={"prefect.flow-run.Late"},
        expect={"prefect.flow-run.*"},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        threshold=1,
        within=late,
    )


def _sending(block: BlockDocument, text: str) -> ActionTypes:
    """The text as JSON, `{"text": ...}` as chat programs read it, or as a notification."""
    from prefect.events.actions import CallWebhook, SendNotification

    if _is_webhook(block):
        payload = '{"text": {% set text %}' + text + "{% endset %}{{ text|string|tojson }}}"
        return CallWebhook(block_document_id=block.id, payload=payload)
    return SendNotification(block_document_id=block.id, subject="AgentFly", body=text)


def _is_webhook(block: BlockDocument) -> bool:
    return block.block_type is not None and block.block_type.slug == "webhook"
