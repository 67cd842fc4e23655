"""Sending the flows to a Prefect server: `python -m flows.deploy`, as often as wanted."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from flows.local.prefect_server import UI, use
from flows.local.state_dirs import settle
from flows.nights.alarms import put, tell_people
from flows.nights.deployment_schedule import keeping_schedules

POOL = "agentfly"
SILENCE = timedelta(minutes=10)


def main() -> int:
    """Make the work pool, the deployments of prefect.yaml, and the automations: one notices dead
    flow runs, the others tell about nights.

    What was switched on stays on.
    """
    places = settle(Path.cwd())
    use(places.api or f"{UI}/api")
    _prefect("work-pool", "create", POOL, "--type", "process", "--overwrite")
    with keeping_schedules():
        _prefect("deploy", "--all")
    notice_the_dead(SILENCE)
    for name, blocks in tell_people().items():
        told = f"told to {blocks} block(s)" if blocks else "told to nobody: docs/nights.md#be-told"
        print(f"{name}: {told}")
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
    put(Automation(name="AgentFly: crash silent flow runs", trigger=trigger, actions=[action]))


def _prefect(*words: str) -> None:
    subprocess.run([sys.executable, "-P", "-m", "prefect", "--no-prompt", *words], check=True)


if __name__ == "__main__":
    sys.exit(main())
