"""Prefect's servers, and flow runs without a worker."""

import os
import subprocess
import sys

import httpx
import pytest
from prefect.client.orchestration import get_client

from flows import deploy
from flows.local.flow_run_owners import crash_dead
from flows.local.own_servers import own_api, password
from flows.local.prefect_server import answers, use
from flows.local.prefect_server import prefect_api as prefect_api_of
from flows.local.state_dirs import Places
from tests.support.project import ROOT, Project
from tests.support.servers import free_port, request
from tests.support.waiting import until


def test_the_flow_run_of_a_killed_process_becomes_crashed(prefect_api, monkeypatch, tmp_path):
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    program = (
        "import os, signal\nfrom prefect import flow, runtime\n"
        "from flows.local.flow_run_owners import sign\n@flow\ndef killed():\n"
        "    sign()\n    print(runtime.flow_run.id, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\nkilled()\n"
    )
    (tmp_path / "killed.py").write_text(program)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "killed.py")],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    flow_run = done.stdout.strip()
    use(prefect_api)
    assert flow_run in crash_dead()
    assert flow_run not in crash_dead()
    assert request("GET", f"{prefect_api}/flow_runs/{flow_run}")["state"]["name"] == "Crashed"


@pytest.mark.service
def test_a_process_without_an_api_has_a_temporary_server(tmp_path):
    program = (
        "import os, signal\nfrom pathlib import Path\nfrom flows.local.state_dirs import settle\n"
        "from flows.local.prefect_server import prefect_api\n"
        "with prefect_api(settle(Path.cwd())) as wait:\n"
        "    wait()\n    print(os.environ['PREFECT_API_URL'], flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True, check=False
    )
    url = done.stdout.strip()
    assert url.startswith("http://127.0.0.1:")
    until(lambda: not answers(url))
    assert (tmp_path / ".agentfly/prefect/prefect.db").exists()
    assert not (tmp_path / ".prefect").exists()


@pytest.mark.long
@pytest.mark.service
def test_a_server_without_up_has_a_page_and_a_password(tmp_path, monkeypatch):
    for name in ("PREFECT_API_URL", "PREFECT_HOME", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)
    project, port = Project(tmp_path), free_port()
    words = ["-m", "flows", "prefect", "server", "start", "--port", str(port)]
    server = project.start(sys.executable, *words, PYTHONPATH=str(ROOT))
    state, api = tmp_path / ".agentfly", f"http://127.0.0.1:{port}/api"
    until(lambda: answers(api) and own_api(state), server)
    assert own_api(state) == {
        "PREFECT_API_URL": api,
        "PREFECT_API_AUTH_STRING": f"agentfly:{password(state)}",
    }
    page = httpx.get(f"http://127.0.0.1:{port}/ui-settings").json()
    assert (page["api_url"], page["auth"]) == (api, "BASIC")
    assert httpx.post(f"{api}/deployments/filter", json={}).status_code == 401
    server.kill()
    server.communicate()


@pytest.mark.service
def test_work_continues_when_the_chosen_api_is_silent(tmp_path, monkeypatch, caplog):
    nowhere = "http://127.0.0.1:9/api"
    monkeypatch.setenv("PREFECT_API_URL", nowhere)
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "someone:secret")  # set here to have it restored
    with prefect_api_of(Places(tmp_path, nowhere, f"{nowhere} (PREFECT_API_URL is set)")) as wait:
        wait()
        url = os.environ["PREFECT_API_URL"]
        assert url != nowhere
        assert httpx.post(f"{url}/deployments/filter", json={}).status_code == 401
    assert f"{nowhere} (PREFECT_API_URL is set) does not answer" in caplog.text


def deployed(change):
    """Change the deployments of the server."""
    with get_client(sync_client=True) as client:
        change(client)


@pytest.fixture
def prices(prefect_api, monkeypatch, tmp_path):
    """The deployment of the flow `prices` of an experiment.

    Its name is in the form's list, which was made when the first test imported the flows.
    """
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    use(prefect_api)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/folding.yaml").write_text("flows: {prices: 'my_shop:prices'}\n")
    deploy.make_pool()
    deployed(deploy.deploy_own_flows)
    return f"{prefect_api}/deployments/name/folding/prices"


def test_a_flow_of_an_experiment_keeps_its_schedules(prices, prefect_api):
    cron = {"cron": "0 4 * * *", "timezone": "Europe/Berlin"}
    added = {"schedule": cron, "active": False, "parameters": {"site": "lab"}}
    url = f"{prefect_api}/deployments/{request('GET', prices)['id']}/schedules"
    request("POST", url, json=[added])
    for _ in range(2):
        deployed(deploy.deploy_own_flows)
    (kept,) = request("GET", prices)["schedules"]
    assert (kept["active"], kept["parameters"]) == (False, {"site": "lab"})
    assert cron.items() <= kept["schedule"].items()


def test_a_removed_flow_with_edited_parameters_is_deleted(prices, prefect_api, tmp_path):
    deployment = request("GET", prices)
    parameters = {**deployment["parameters"], "site": "lab"}  # edited in Prefect's UI
    edited = {"parameters": parameters, "enforce_parameter_schema": False}
    request("PATCH", f"{prefect_api}/deployments/{deployment['id']}", json=edited)
    (tmp_path / "conf/folding.yaml").unlink()
    deployed(deploy.delete_lost_flows)
    left = request("POST", f"{prefect_api}/deployments/filter", json={})
    assert "folding" not in [one["parameters"].get("experiment") for one in left]
