"""One command serves a project that `agentfly init` has written, and another one ends it all."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from agentfly_core.runs.tracking.mlflow_client import MlflowStore
from agentfly_core.system.module_search import OF_SERVERS
from flows.local.up import keeper, show_status
from tests.support.processes import command
from tests.support.project import PROGRAMS, Project
from tests.support.servers import free_port
from tests.support.up_servers import Up
from tests.support.waiting import LIMIT, until

SMALL = ["data.test=2", "warm_start.episodes=16", "rollout.problems=2", "steps=9"]
CHOSEN = ("PREFECT_API_URL", "PREFECT_HOME", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_URI")


@dataclass(frozen=True)
class Served:
    """A project in a folder of its own, with what `agentfly up` serves of it."""

    project: Project
    up: Up

    @property
    def state(self) -> Path:
        """The folder of the project's state."""
        return self.project.root / ".agentfly"

    def works(self) -> bool:
        """Whether everything works."""
        return show_status(MlflowStore.choose(self.state)) == 0

    def experiments(self) -> list[str]:
        """The experiments that the form of the deployment `train` offers."""
        with self.up.http as http:
            train = http.get("/deployments/name/train/train").json()
        offered: list[str] = train["parameter_openapi_schema"]["properties"]["experiment"]["enum"]
        return offered

    def server(self) -> psutil.Process:
        """The process of Prefect's server."""
        port = httpx.URL(self.up.url).port
        (process,) = [
            process
            for process in self.family()
            for connection in process.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port
        ]
        return process

    def family(self) -> list[psutil.Process]:
        """`agentfly up` and its descendants."""
        up = psutil.Process(self.up.pid)
        return [up, *up.children(recursive=True)]

    def running(self, module: str) -> list[psutil.Process]:
        """Those of them that run a module."""
        return [process for process in self.family() if module in command(process).split()]

    def learns_without(self, variables: set[str]) -> bool:
        """Whether a learner runs, and its environment has none of the variables."""
        for learner in self.running("agentfly_core.training.worker"):
            with suppress(psutil.NoSuchProcess):  # a warm start has a learner of its own
                assert not variables & learner.environ().keys()
                return True
        return False


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, service_address: object) -> Iterator[Served]:
    """A new project below a path with a space and an umlaut, served; without a clone of ours."""
    folder = tmp_path_factory.mktemp("up")
    project = Project(folder / "my shöp", AGENTFLY_LOCKS=str(folder), HOME=str(folder))
    for name in CHOSEN:
        project.env.pop(name, None)
    project.env["PATH"] = os.defpath  # as systemd starts it
    agentfly = str(PROGRAMS / "agentfly")
    Project(folder, **project.env).run(agentfly, "init", str(project.root))
    ports = [f"--prefect-port={free_port()}", f"--mlflow-port={free_port()}"]
    project.run(agentfly, "up", "--detach", *ports)
    state = project.root / ".agentfly"
    yield Served(project, Up.of(state))
    if left := keeper(state):
        psutil.Process(left).kill()


def test_the_password_is_required_and_never_logged(
    served: Served,
) -> None:
    with httpx.Client() as anybody:
        experiments = f"{served.up.mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0"
        flows = f"{served.up.url}/deployments/filter"
        assert anybody.get(experiments).status_code == 401
        assert anybody.post(flows, json={}).status_code == 401
        credentials = served.up.auth
        assert anybody.get(experiments, auth=credentials).status_code == 200
        assert anybody.post(flows, json={}, auth=credentials).status_code == 200
    log = (served.state / "logs/up.log").read_text()
    assert served.up.auth[1] not in log
    for process in served.family():
        assert served.up.auth[1] not in command(process)
        listens = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert {connection.laddr.ip for connection in listens} <= {"127.0.0.1"}


def test_the_page_on_another_port_asks_the_server_on_that_port(served: Served) -> None:
    settings = httpx.get(f"{served.up.url.removesuffix('/api')}/ui-settings").json()
    assert (settings["api_url"], settings["auth"]) == (served.up.url, "BASIC")


def test_a_killed_worker_restarts_with_a_heartbeat(
    served: Served,
) -> None:
    supervisor, worker = served.running("agentfly-up")
    worker.kill()
    until(lambda: served.running("agentfly-up")[1:] not in ([], [worker]), served.up.pid)
    until(served.works, served.up.pid)
    assert served.running("agentfly-up")[0] == supervisor


def test_a_server_that_was_killed_is_started_again(served: Served) -> None:
    before = served.server()
    before.kill()
    until(served.works, served.up.pid)
    assert served.server() != before


def test_an_added_experiment_appears_while_up_runs(
    served: Served,
) -> None:
    assert served.experiments() == ["market"]
    conf = served.project.root / "conf"
    (conf / "stall.yaml").write_text((conf / "market.yaml").read_text())
    until(lambda: served.experiments() == ["market", "stall"], served.up.pid)


def test_triggered_runs_use_the_project_and_end_with_down(served: Served) -> None:
    agentfly = str(PROGRAMS / "agentfly")
    status = served.project.run(agentfly, "up", "--status")
    assert "Deployed evaluate, nightly, prepare, promote, train works" in status
    with served.up.http as http:
        train = http.get("/deployments/name/train/train").json()
        given = {"parameters": {"overrides": SMALL}}
        triggered = http.post(f"/deployments/{train['id']}/create_flow_run", json=given).json()
        assert triggered["parameters"]["experiment"] == "market"
        until(lambda: served.learns_without(OF_SERVERS), served.up.pid)
        assert http.get(f"/flow_runs/{triggered['id']}").json()["state"]["name"] == "Running"

    family = served.family()
    assert "Ended." in served.project.run(agentfly, "down")
    assert psutil.wait_procs(family, timeout=LIMIT)[1] == []
