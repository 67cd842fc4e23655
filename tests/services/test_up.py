"""One command serves a project that `agentfly init` has written, and another one ends it all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import httpx
import psutil
import pytest

from agentfly_core.system.module_search import OF_SERVERS
from flows.local.servers import Servers
from flows.local.sign_in import SignIn
from flows.up.health import look
from tests.support.processes import command
from tests.support.project import PROGRAMS, Project
from tests.support.servers import client, free_port
from tests.support.waiting import LIMIT, until

SMALL = ["data.test=2", "warm_start.episodes=16", "rollout.problems=2", "steps=9"]
CHOSEN = ("PREFECT_API_URL", "PREFECT_HOME", "PREFECT_API_AUTH_STRING", "MLFLOW_TRACKING_URI")


@dataclass(frozen=True)
class Served:
    """A project in a folder of its own, with what `agentfly up` serves of it."""

    project: Project
    servers: Servers
    sign_in: SignIn

    @property
    def http(self) -> httpx.Client:
        """A client of Prefect's API that knows the password."""
        return client(self.servers.api, (self.sign_in.name, self.sign_in.password))

    def family(self) -> list[psutil.Process]:
        """`agentfly up` with all that it has started, and what those have."""
        up = psutil.Process(self.servers.owner.pid)
        return [up, *up.children(recursive=True)]

    def running(self, module: str) -> list[psutil.Process]:
        """Those of them that run a module."""
        return [process for process in self.family() if module in command(process).split()]


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
    said = project.run(agentfly, "up", "--detach", *ports)
    state = project.root / ".agentfly"
    servers = Servers.running(state)
    assert servers, said
    yield Served(project, servers, SignIn.of(state))
    if left := Servers.running(state):
        psutil.Process(left.owner.pid).kill()


def test_nobody_without_the_password_is_answered_and_the_password_is_told_to_no_log(
    served: Served,
) -> None:
    with httpx.Client() as anybody:
        experiments = f"{served.servers.mlflow}/api/2.0/mlflow/experiments/get?experiment_id=0"
        flows = f"{served.servers.api}/deployments/filter"
        assert anybody.get(experiments).status_code == 401
        assert anybody.post(flows, json={}).status_code == 401
        known = (served.sign_in.name, served.sign_in.password)
        assert anybody.get(experiments, auth=known).status_code == 200
        assert anybody.post(flows, json={}, auth=known).status_code == 200
    log = (served.project.root / ".agentfly/logs/up.log").read_text()
    assert served.sign_in.password not in log
    for process in served.family():
        assert served.sign_in.password not in command(process)
        listens = [c for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN]
        assert {connection.laddr.ip for connection in listens} <= {"127.0.0.1"}


def test_the_page_on_another_port_asks_the_server_on_that_port(served: Served) -> None:
    settings = httpx.get(f"{served.servers.prefect}/ui-settings").json()
    assert (settings["api_url"], settings["auth"]) == (served.servers.api, "BASIC")


def test_a_worker_that_was_killed_is_started_again_and_gives_a_sign_of_life(
    served: Served,
) -> None:
    supervisor, worker = served.running("agentfly-up")
    worker.kill()
    killed = datetime.now(UTC)
    until(lambda: look(served.servers, served.sign_in, since=killed).good, served.servers.owner.pid)
    kept, started = served.running("agentfly-up")
    assert kept == supervisor
    assert started != worker


def test_what_is_triggered_runs_in_the_project_and_down_ends_all_of_it(served: Served) -> None:
    agentfly = str(PROGRAMS / "agentfly")
    status = served.project.run(agentfly, "up", "--status")
    assert "deployed: evaluate, nightly, prepare, promote, train." in status
    with served.http as http:
        train = http.get("/deployments/name/train/train").json()
        given = {"parameters": {"overrides": SMALL}}
        triggered = http.post(f"/deployments/{train['id']}/create_flow_run", json=given).json()
        assert triggered["parameters"]["experiment"] == "market"
        until(lambda: served.running("agentfly_core.training.worker"), served.servers.owner.pid)
        assert http.get(f"/flow_runs/{triggered['id']}").json()["state"]["name"] == "Running"

    family, (learner, *_) = served.family(), served.running("agentfly_core.training.worker")
    assert not OF_SERVERS & learner.environ().keys()
    assert "Ended." in served.project.run(agentfly, "down")
    assert psutil.wait_procs(family, timeout=LIMIT)[1] == []
