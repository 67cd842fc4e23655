"""Sending the flows to a Prefect server: `python -m flows.deploy`, as often as wanted."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

from flows.local.flow_run_owners import crash_dead
from flows.local.prefect_server import POOL
from flows.local.state_dirs import settle
from flows.nights.alarms import put, tell_people
from flows.nights.deployment_schedule import keeping_schedules

SILENCE = timedelta(minutes=10)


def main() -> int:
    """Deploy to the chosen Prefect server, or else to the one of this project."""
    if not settle(Path.cwd()).api:
        raise SystemExit(
            "No Prefect server of this project runs. Start it with `agentfly up`, which deploys, "
            "too, or with `agentfly prefect server start`; or set PREFECT_API_URL."
        )
    if not Path("prefect.yaml").is_file():
        raise SystemExit(
            f"There is no prefect.yaml in {Path.cwd()}, which names the deployments: give the "
            "command in the folder of your project, or make one with `agentfly init`."
        )
    crash_dead()
    make_pool()
    deploy()
    print(
        "\nDeployed. What is triggered is run by a worker: agentfly prefect worker start --pool "
        f"{POOL}"
    )
    return 0


def make_pool() -> None:
    """Make the pool to which the deployments send their flow runs, as this Prefect has it."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=POOL, type=ProcessWorker.type, base_job_template=template)
    with get_client(sync_client=True) as client:
        client.create_work_pool(pool, overwrite=True)


def deploy() -> None:
    """Make the deployments of prefect.yaml, and the automations: one notices dead flow runs, the
    others tell about nights.

    What was switched on stays on. Exits where Prefect refuses the file.
    """
    from prefect.cli import app

    with keeping_schedules():
        sys.argv = ["prefect", "--no-prompt", "deploy", "--all"]
        try:
            app()  # in this process, which has imported Prefect already
        except SystemExit as end:
            if end.code:
                path = Path("prefect.yaml").resolve()
                raise SystemExit(f"`prefect deploy --all` failed on {path}.") from None
    notice_the_dead(SILENCE)
    for name, blocks in tell_people().items():
        alarms = (
            f"told to {blocks} block(s)" if blocks else "told to nobody: docs/nights.md#be-told"
        )
        print(f"{name}: {alarms}")


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
        f"It gave no sign of life for {silence}. Run it again: it continues from what is on disk."
    )
    # not by force: the heartbeat of a short flow run may arrive after the word that it is over
    action = ChangeFlowRunState(
        name="Crashed", state=StateType.CRASHED, message=message, force=False
    )
    put(Automation(name="AgentFly: crash silent flow runs", trigger=trigger, actions=[action]))


if __name__ == "__main__":
    sys.exit(main())
