"""An empty folder becomes a learning project with the wheel only, without a clone."""

import json
import os
import subprocess
from pathlib import Path

import httpx
import psutil
import pytest

from agentfly_core.runs.run import links_of
from agentfly_core.store.store import Store
from flows.local.up import keeper
from tests.support.installed_wheel import installed
from tests.support.servers import free_port
from tests.support.up_servers import Up
from tests.support.waiting import LIMIT

NAME = "my markets, früh"


@pytest.mark.long
def test_the_installed_wheel_makes_a_project_that_learns(
    tmp_path: Path,
) -> None:
    python = installed(tmp_path)
    agentfly, project = str(python.with_name("agentfly")), tmp_path / NAME
    env = {"HOME": str(tmp_path), "PATH": os.defpath, "AGENTFLY_LOCKS": str(tmp_path)}

    def run(*words: str, at: Path = project) -> str:
        return subprocess.check_output(words, cwd=at, env=env, text=True)

    run(agentfly, "init", NAME, at=tmp_path)
    assert "market:questions" in run(agentfly, "config", "market")
    run(agentfly, "train", "market")
    (file,) = (project / "runs").glob("*/summary.json")
    summary = json.loads(file.read_text())
    assert summary["interval_after"][0] > summary["interval_before"][1]

    run(agentfly, "up", "--detach", f"--prefect-port={free_port()}", f"--mlflow-port={free_port()}")
    try:
        assert shown(project / ".agentfly", summary) == ["COMPLETED", "FINISHED"]
        run(agentfly, "down")
    finally:
        if left := keeper(project / ".agentfly"):
            psutil.Process(left).kill()


def shown(state: Path, summary: dict[str, str]) -> list[str]:
    """How the servers of `agentfly up` say that a run's flow run and its run in MLflow ended."""
    up = Up.of(state)
    run, wanted = summary["run"], {"flow_runs": {"name": {"any_": [summary["run"]]}}}
    with httpx.Client(auth=up.auth, timeout=LIMIT) as http:
        (flow_run,) = http.post(f"{up.url}/flow_runs/filter", json=wanted).json()
        (run_id,) = links_of(Store.at(str(state.parent), state), run)["mlflow_run_ids"]
        url, query = f"{up.mlflow}/api/2.0/mlflow/runs", {"run_id": run_id}
        stored = http.get(f"{url}/get", params=query).json()["run"]
    (reward,) = [p for p in stored["data"]["metrics"] if p["key"] == "rollout/reward"]
    assert (stored["info"]["run_name"], reward["step"]) == (run, summary["steps"])
    return [flow_run["state_type"], stored["info"]["status"]]
