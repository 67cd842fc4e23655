"""Sending the flows to a Prefect server: `python -m flows.deploy`, as often as wanted."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from flows.local.prefect_server import UI, use
from flows.local.state_dirs import settle

POOL = "agentfly"
SILENCE = timedelta(minutes=10)


def main() -> int:
    """Make the work pool, the deployments of prefect.yaml, and the automation that notices dead
    flow runs.
    """
    places = settle(Path.cwd())
    use(places.api or f"{UI}/api")
    _prefect("work-pool", "create", POOL, "--type", "process", "--overwrite")
    _prefect("deploy", "--all")
    notice_the_dead(SILENCE)
    print(
        "\nDeployed. What is triggered is run by a worker: agentfly prefect worker start --pool "
        f"{POOL}"
    )
    return 0


def notice_the_dead(silence: timedelta) -> None:
    """Have the server mark flow runs Crashed that fell silent: nobody else notices a machine that
    went down.

    A heartbeat comes every 180 s, or every PREFECT_FLOWS_HEARTBEAT_FREQUENCY seconds.
    """
    from prefect.automations import Automation
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.events.schemas.automations import EventTrigger, Posture
    from prefect.events.schemas.events import ResourceSpecification

    trigger = EventTrigger(
        match=ResourceSpecification({"prefect.resource.id": "prefect.flow-run.*"}),
        after={"prefect.flow-run.heartbeat"},
        expect={"prefect.flow-run.*"},
        for_each={"prefect.resource.id"},
        posture=Posture.Proactive,
        within=silence,
    )
    message = (
        f"It gave no sign of life for {silence}. Run it again: it goes on from what is on disk."
    )
    action = ChangeFlowRunState(
        name="Crashed", state=StateType.CRASHED, message=message, force=True
    )
    wanted = Automation(name="AgentFly: crash silent flow runs", trigger=trigger, actions=[action])
    with get_client(sync_client=True) as client:
        for old in client.read_automations_by_name(wanted.name):
            client.delete_automation(old.id)
    wanted.create()


def _prefect(*words: str) -> None:
    subprocess.run([sys.executable, "-P", "-m", "prefect", "--no-prompt", *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
