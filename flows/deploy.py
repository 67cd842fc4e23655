"""Deploy the flows to a Prefect server: `python -m flows.deploy`."""

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentfly_core.config import loading
from agentfly_core.system.formats import strict_yaml
from agentfly_core.system.formats.text import did_you_mean
from flows.local.flow_run_owners import crash_dead
from flows.local.prefect_server import POOL
from flows.local.state_dirs import settle
from flows.nights.deployment_schedule import create_schedule
from flows.nights.events import create_automations

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

OWN_FLOW = "flows.own_flows:own_flow"
PAGE = 200
"""The largest number of deployments that Prefect returns for a request."""
SET_FOLDER = "prefect.deployments.steps.set_working_directory"
SCHEDULE = {"schedule", "active", "max_scheduled_runs", "parameters", "slug"}
"""The fields of a Prefect schedule that are kept when its flow is deployed again."""


def main() -> int:
    """Deploy the flows to a Prefect server, and return the exit status.

    The server is set by the environment variable PREFECT_API_URL or by a Prefect profile. By
    default, it is this project's server, which `agentfly up` starts.
    """
    if not settle().api:
        raise SystemExit(
            "This project's Prefect server is not running. Start all services with `agentfly up`, "
            "or only the server with `agentfly prefect server start`. To use another server, set "
            "PREFECT_API_URL."
        )
    try:
        require_deployable()
    except ValueError as error:
        raise SystemExit(str(error)) from None
    crash_dead()
    make_pool()
    deploy()
    print(f"\nDeployed. Start a worker: agentfly prefect worker start --pool {POOL}")
    return 0


def require_deployable() -> None:
    """Check that the flows can be deployed.

    Raises ValueError if prefect.yaml is missing, or if one of its deployments names an experiment
    that is not in conf/.
    """
    path = Path("prefect.yaml").absolute()
    if not path.is_file():
        raise ValueError(
            f"{path}, the list of deployments, is missing. Run the command in the folder of a "
            "project; `agentfly init DIR` creates one."
        )
    names = loading.names()
    deployments: Any = strict_yaml.settings(path).get("deployments") or []
    for deployment in deployments:
        named = (deployment.get("parameters") or {}).get("experiment")
        if named and named not in names:
            missing = (loading.CONF / f"{named}.yaml").absolute()
            raise ValueError(
                f"The deployment {deployment['name']!r} of {path} has the experiment {named!r}, "
                f"but {missing} does not exist. Create this file, or change `experiment` in "
                f"prefect.yaml.{did_you_mean(named, names)}"
            )


def make_pool() -> None:
    """Create the work pool of the deployments, with the job template of the installed Prefect."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.workers.process import ProcessWorker

    template = ProcessWorker.get_default_base_job_template()
    pool = WorkPoolCreate(name=POOL, type=ProcessWorker.type, base_job_template=template)
    with get_client(sync_client=True) as client:
        client.create_work_pool(pool, overwrite=True)


def deploy() -> None:
    """Create or update everything that AgentFly deploys to a Prefect server.

    These are the deployments of prefect.yaml, the deployments of experiments' own flows, the
    schedule of nightly training runs, and Prefect automations. A schedule that is switched on stays
    on. Raises SystemExit if Prefect rejects prefect.yaml.
    """
    from prefect.cli import app
    from prefect.client.orchestration import get_client

    sys.argv = ["prefect", "--no-prompt", "deploy", "--all"]
    try:
        app()  # in this process, because it has already imported Prefect
    except SystemExit as end:
        if end.code:
            path = Path("prefect.yaml").resolve()
            raise SystemExit(f"`prefect deploy --all` failed on {path}.") from None
    with get_client(sync_client=True) as client:
        create_schedule(client)
        create_automations(client)
        deploy_own_flows(client)
        delete_lost_flows(client)


def deploy_own_flows(client: "SyncPrefectClient") -> None:
    """Create or update the deployments of the flows that experiments define themselves.

    Each flow in the setting `flows` of an experiment in conf/ gets a deployment EXPERIMENT/FLOW. An
    existing deployment keeps its schedules.
    """
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.utilities.callables import parameter_schema

    from flows.own_flows import own_flow

    folder = str(Path.cwd())
    schedules = {(one.flow_id, one.name): one.schedules for one in all_deployments(client)}
    for experiment, flow in loading.flows():
        of_experiment = client.create_flow_from_name(experiment)
        client.create_deployment(
            of_experiment,
            flow,
            description=f"The flow {flow} of {loading.CONF}/{experiment}.yaml",
            parameters={"experiment": experiment, "flow": flow},
            parameter_openapi_schema=parameter_schema(own_flow).model_dump(),
            enforce_parameter_schema=True,
            entrypoint=OWN_FLOW,
            path=folder,
            pull_steps=[{SET_FOLDER: {"directory": folder}}],
            work_pool_name=POOL,
            # Prefect deletes the schedules that this call does not repeat
            schedules=[
                DeploymentScheduleCreate(**one.model_dump(include=SCHEDULE))
                for one in schedules.get((of_experiment, flow), ())
            ],
        )


def delete_lost_flows(client: "SyncPrefectClient") -> None:
    """Delete this project's deployments of flows that were removed from conf/."""
    for deployment in all_deployments(client):
        ours = (deployment.entrypoint, deployment.path) == (OWN_FLOW, str(Path.cwd()))
        # a user may have added parameters
        given = deployment.parameters
        if ours and loading.has_lost(given["experiment"], given["flow"]):
            client.delete_deployment(deployment.id)


def all_deployments(client: "SyncPrefectClient") -> Sequence["DeploymentResponse"]:
    """Read all deployments of the server, in as few requests as possible."""
    pages = [client.read_deployments(limit=PAGE)]
    while len(pages[-1]) == PAGE:
        pages.append(client.read_deployments(limit=PAGE, offset=PAGE * len(pages)))
    return [*chain.from_iterable(pages)]


if __name__ == "__main__":
    sys.exit(main())
