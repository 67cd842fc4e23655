"""Runs are triggered, cancelled, retried and scheduled through a real Prefect server and worker."""

import json
import os
import re
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from mlflow import MlflowClient

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.run_policies import policy_of
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightLedger
from agentfly_core.reports.nights.promotion_gate import Verdict
from agentfly_core.runs.run import links_of, opened
from agentfly_core.system.devices import held, slot
from flows.experiments import load_experiment
from flows.local.prefect_server import answers
from flows.nights.deployment_schedule import SCHEDULED
from tests.support.owned_programs import serving
from tests.support.processes import command, is_to_end, process_of, processes_of
from tests.support.project import PROGRAMS, Project
from tests.support.servers import client
from tests.support.waiting import until

OWN_FLOW = """
flows:
  openings:
    use: my_flows:openings
    episodes: 2
"""
OWN_MODULE = """
from agentfly_core import play

def openings(experiment, episodes):
    played = play(experiment, "oracle", episodes, "test")
    pairs = zip(played.episodes, played.scores)
    return [{"prompt": one.problem.prompt, "reward": score.reward} for one, score in pairs]
"""
ENDED = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Orchestrator:
    """A Prefect server to which the flows of a project are deployed, with a worker at it."""

    def __init__(self, project: Project, api: str, worker: int) -> None:
        self.project = project
        self.worker = worker
        self.http = client(api)

    def deployment(self, name: str) -> dict:
        full = name if "/" in name else f"{name}/{name}"
        return self.http.get(f"/deployments/name/{full}").json()

    def trigger(self, name: str, **parameters: object) -> httpx.Response:
        url = f"/deployments/{self.deployment(name)['id']}/create_flow_run"
        return self.http.post(url, json={"parameters": parameters})

    def started(self, name: str, **parameters: object) -> str:
        return self.trigger(name, **parameters).raise_for_status().json()["id"]

    def state(self, flow_run: str) -> dict:
        return self.http.get(f"/flow_runs/{flow_run}").json()["state"]

    def wait(self, flow_run: str, *names: str) -> None:
        until(
            lambda: self.state(flow_run)["type"] in ENDED or self.state(flow_run)["name"] in names,
            self.worker,
        )
        state = self.state(flow_run)
        assert state["name"] in names, f"{state['name']}: {state['message']}\n{self.log(flow_run)}"

    def log(self, flow_run: str) -> str:
        lines = self.http.post(
            "/logs/filter", json={"logs": {"flow_run_id": {"any_": [flow_run]}}}
        ).json()
        return "\n".join(line["message"] for line in lines)

    def restart_server(self) -> None:
        """Kill the Prefect server; its supervisor starts it again on the same database."""
        port = f"--port {self.http.base_url.port}"
        supervisor, server = [
            child
            for child in psutil.Process().children(recursive=True)
            if command(child).endswith(port)
        ]
        assert server.parent() == supervisor
        server.kill()
        server.wait()
        until(lambda: answers(str(self.http.base_url).rstrip("/")))

    def tasks(self, flow_run: str) -> list[tuple[str, str]]:
        task_runs = self.http.post(
            "/task_runs/filter", json={"flow_runs": {"id": {"any_": [flow_run]}}}
        ).json()
        return [(task["name"], task["state"]["name"]) for task in task_runs]


@pytest.fixture(scope="module")
def orchestrator(tmp_path_factory, prefect_api, service_address):
    home = str(tmp_path_factory.mktemp("home"))
    locks = str(tmp_path_factory.mktemp("locks"))
    env = {"PREFECT_API_URL": prefect_api, "PREFECT_HOME": home, "AGENTFLY_LOCKS": locks}
    project = Project.clone(tmp_path_factory.mktemp("project"), **env)
    with (project.root / "conf/tiny.yaml").open("a") as experiment:
        experiment.write(OWN_FLOW)
    (project.root / "my_flows.py").write_text(OWN_MODULE)
    project.run(sys.executable, "-m", "flows.deploy")
    worker = ["env", "-C", str(project.root), PROGRAMS / "agentfly"]
    worker += ["prefect", "worker", "start", "--pool", "agentfly", "--type", "process"]
    env = {**project.env, "PREFECT_WORKER_QUERY_SECONDS": "1"}
    with serving(worker, service_address("worker"), project.root / "worker.log", env) as process:
        yield Orchestrator(project, prefect_api, process)


def test_the_form_lists_experiments_and_names_mistakes(orchestrator):
    form = orchestrator.deployment("train")["parameter_openapi_schema"]["properties"]
    assert sorted(form, key=lambda name: form[name]["position"])[:3] == [
        "experiment",
        "run",
        "overrides",
    ]
    assert form["experiment"]["enum"] == ["tiny"]
    assert "steps=30" in form["overrides"]["examples"][0]
    assert "key=value" in form["overrides"]["description"]

    refused = orchestrator.trigger("train", experiment="tiny", overrides=["steps=2", "stpes=3"])
    assert refused.status_code == 409
    assert "overrides[1]" in refused.text
    assert "'stpes=3' does not match" in refused.text
    assert (
        "'quickstrat' is not one of ['tiny']"
        in orchestrator.trigger("train", experiment="quickstrat").text
    )


def test_a_flow_of_an_experiment_is_deployed_and_its_rows_shown(orchestrator, tmp_path):
    deployment = orchestrator.deployment("tiny/openings")
    assert deployment["parameters"] == {"experiment": "tiny", "flow": "openings"}
    triggered = orchestrator.started("tiny/openings", overrides=["flows.openings.episodes=3"])
    refused = orchestrator.started("tiny/openings", flow="ends")
    orchestrator.wait(triggered, "Completed")
    assert orchestrator.http.get(f"/flow_runs/{triggered}").json()["name"] == "tiny openings"
    wanted = {"flow_runs": {"id": {"any_": [triggered]}}}
    (artifact,) = orchestrator.http.post("/artifacts/filter", json=wanted).json()
    rows = json.loads(artifact["data"])
    assert artifact["key"] == "openings-tiny"
    assert [row["reward"] for row in rows] == [1.0, 1.0, 1.0]

    mlflow = MlflowClient(f"sqlite:///{orchestrator.project.root}/.agentfly/mlflow.db")
    (run,) = [
        one
        for one in mlflow.search_runs([mlflow.get_experiment_by_name("tiny").experiment_id])
        if one.data.tags.get("agentfly.stage") == "openings"
    ]
    assert run.data.tags["agentfly.prefect_flow_run"].endswith(f"/runs/flow-run/{triggered}")
    assert run.data.params["flows.openings.episodes"] == "3"
    points = mlflow.get_metric_history(run.info.run_id, "openings/reward")
    assert [(point.step, point.value) for point in points] == [(1, 1.0), (2, 1.0), (3, 1.0)]
    path = mlflow.download_artifacts(run.info.run_id, "openings/step-000000.json", str(tmp_path))
    table = json.loads(Path(path).read_text())
    assert table["data"] == [[row["prompt"], row["reward"]] for row in rows]

    orchestrator.wait(refused, "Failed")
    assert "has no flow 'ends'. Its flows are: openings." in orchestrator.state(refused)["message"]


@pytest.mark.long
def test_the_deployment_of_a_removed_flow_is_deleted(orchestrator):
    file = orchestrator.project.root / "conf/tiny.yaml"
    complete = file.read_text()
    changes = [("flows:", "flows: [", True), (OWN_FLOW, "", False), ("", "", True)]
    for old, new, is_deployed in changes:
        file.write_text(complete.replace(old, new))
        orchestrator.project.run(sys.executable, "-m", "flows.deploy")
        shown = orchestrator.deployment("tiny/openings")
        assert ("parameters" in shown) == is_deployed, new
        assert orchestrator.deployment("train")["name"] == "train"


def test_no_deployment_has_a_concurrency_limit(orchestrator):
    limits = {
        name: orchestrator.deployment(name)["global_concurrency_limit"]
        for name in ("train", "nightly")
    }
    assert limits == {"train": None, "nightly": None}


def test_nights_wait_to_be_switched_on(orchestrator):
    (schedule,) = orchestrator.deployment("nightly")["schedules"]
    assert (schedule["active"], schedule["schedule"]["cron"]) == (False, "0 2 * * *")


@pytest.mark.long
def test_deploying_again_keeps_active_and_added_schedules(orchestrator):
    deployment = orchestrator.deployment("nightly")
    (own,) = deployment["schedules"]
    url = f"/deployments/{deployment['id']}/schedules"
    cron = {"cron": "0 4 * * *", "timezone": "Europe/Berlin"}
    added = {"schedule": cron, "active": True, "parameters": {"experiment": "tiny"}}
    orchestrator.http.post(url, json=[added]).raise_for_status()
    switched = orchestrator.http.patch(f"{url}/{own['id']}", json={"active": True})
    switched.raise_for_status()

    orchestrator.project.run(sys.executable, "-m", "flows.deploy")
    schedules = orchestrator.deployment("nightly")["schedules"]
    shown = sorted((one["schedule"]["cron"], one["active"], one["parameters"]) for one in schedules)
    assert shown == [("0 2 * * *", True, {}), ("0 4 * * *", True, {"experiment": "tiny"})]
    for one in schedules:
        orchestrator.http.delete(f"{url}/{one['id']}").raise_for_status()
    orchestrator.project.run(sys.executable, "-m", "flows.deploy")
    (again,) = orchestrator.deployment("nightly")["schedules"]
    assert not again["active"]


def test_a_schedule_that_is_switched_on_has_flow_runs(orchestrator):
    nightly = orchestrator.deployment("nightly")
    (schedule,) = nightly["schedules"]
    where = f"/deployments/{nightly['id']}/schedules/{schedule['id']}"
    orchestrator.http.patch(where, json={"active": True}).raise_for_status()
    orchestrator.http.post(f"/deployments/{nightly['id']}/schedule", json={}).raise_for_status()
    wanted = {"deployments": {"id": {"any_": [nightly["id"]]}}}
    planned = orchestrator.http.post("/flow_runs/filter", json=wanted).json()
    orchestrator.http.patch(where, json={"active": False}).raise_for_status()
    scheduled = [run for run in planned if run["auto_scheduled"]]
    assert {run["state"]["name"] for run in scheduled} == {"Scheduled"}
    starts = {SCHEDULED.match(run["idempotency_key"])[1]: run for run in scheduled}
    assert starts and len(starts) == len(scheduled)
    assert all(run["expected_start_time"].startswith(start) for start, run in starts.items())


@pytest.mark.long
def test_a_refused_secret_names_the_delete_command(orchestrator):
    triggered = orchestrator.started(
        "train", experiment="tiny", overrides=["warm_start.settings.api_key=s3cr3t-value"]
    )
    orchestrator.wait(triggered, "Failed")
    assert "s3cr3t-value" in orchestrator.http.get(f"/flow_runs/{triggered}").text
    delete = f"agentfly prefect flow-run delete {triggered}"
    assert delete in orchestrator.state(triggered)["message"]
    until(lambda: delete in orchestrator.log(triggered))
    assert "s3cr3t-value" not in orchestrator.log(triggered)

    orchestrator.project.run(*delete.split())
    assert orchestrator.http.get(f"/flow_runs/{triggered}").status_code == 404
    assert list((orchestrator.project.root / "runs").glob("*")) == []


@pytest.mark.long
def test_a_cancelled_run_can_be_retried(orchestrator):
    run = orchestrator.project.root / "runs" / "cancelled"
    triggered = orchestrator.started(
        "train", experiment="tiny", run="cancelled", overrides=["steps=4"]
    )
    until((run / "steps/000001/policy/MANIFEST.json").exists)
    uid = json.loads((run / "run.json").read_text())["uid"]
    assert processes_of(uid)

    flow = process_of(triggered)
    flow.suspend()  # a server with a busy database may need longer than the other steps
    orchestrator.http.post(
        f"/flow_runs/{triggered}/set_state", json={"state": {"type": "CANCELLING"}}
    ).raise_for_status()
    until(lambda: is_to_end(flow))
    flow.resume()
    orchestrator.wait(triggered, "Cancelled")
    assert processes_of(uid) == []
    done = len(list(run.glob("steps/*/policy/MANIFEST.json")))
    assert done < 4

    orchestrator.project.run("prefect", "flow-run", "retry", triggered)
    orchestrator.wait(triggered, "Completed")
    assert json.loads((run / "summary.json").read_text())["steps"] == 4
    until(lambda: ("update step 4", "Completed") in orchestrator.tasks(triggered))
    until(lambda: re.search(r"step 4/4 +evaluate +\d+/\d+ ", orchestrator.log(triggered)))
    reused = [name for name, state in orchestrator.tasks(triggered) if state == "Reused"]
    assert {"prepare the dataset", "make the base model", f"update step {done}"} <= set(reused)
    assert f"update step {done + 1}" not in reused


@pytest.fixture(scope="module")
def third_night(orchestrator):
    """The flow run of a night after a failed and an unfinished night, and the experiment of all
    three.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(orchestrator.project.root)
        experiment = load_experiment("tiny", ["steps=1"], "local", "")
    for night in ("nightly-2026-11-19", "nightly-2026-11-20"):
        with opened(experiment, night):
            NightLedger(experiment.store, "tiny").append(night, "began")
    gone = experiment.store.read_json("runs/nightly-2026-11-19/run.json") | {
        "stages": {"rollout": 0}
    }
    experiment.store.write_json("runs/nightly-2026-11-19/run.json", gone)
    overrides = ["steps=1", "promotion.start=last"]
    triggered = orchestrator.started(
        "nightly", experiment="tiny", overrides=overrides, date="2026-11-21", attempts=2
    )
    orchestrator.wait(triggered, "Completed")
    return triggered, experiment


def test_a_night_settles_earlier_nights_first(orchestrator, third_night):
    triggered, experiment = third_night
    entries = NightLedger(experiment.store, "tiny").read().entries
    assert [(entry.night[-2:], entry.event) for entry in entries[:10]] == [
        ("19", "began"),
        ("20", "began"),
        ("19", "began"),
        ("19", "given_up"),
        ("20", "began"),
        ("20", "finished"),
        ("20", "kept"),
        ("21", "began"),
        ("21", "finished"),
        ("21", "kept"),
    ]
    before, tonight = (
        experiment.store.read_json(f"runs/nightly-2026-11-{day}/summary.json") for day in (20, 21)
    )
    record = experiment.store.read_json("runs/nightly-2026-11-21/run.json")
    assert record["settings"]["night"] == {"number": 1, "tasks": {}}
    assert record["parent"]["run"] == "nightly-2026-11-20"
    assert record["parent"]["digest"] == before["policy_digest"] != tonight["policy_digest"]
    assert "nightly-2026-11-19: given up" in orchestrator.log(triggered)
    wanted = {"flow_run_id": {"any_": [triggered]}, "type": {"any_": ["markdown"]}}
    reports = orchestrator.http.post("/artifacts/filter", json={"artifacts": wanted}).json()
    assert sorted((report["key"], report["data"].split()[1]) for report in reports) == [
        ("night-tiny", "nightly-2026-11-20"),
        ("night-tiny", "nightly-2026-11-21"),
    ]
    mlflow = MlflowClient(f"sqlite:///{orchestrator.project.root}/.agentfly/mlflow.db")
    (run_id,) = links_of(experiment.store, "nightly-2026-11-21")["mlflow_run_ids"]
    tags = mlflow.get_run(run_id).data.tags
    assert tags["agentfly.prefect_flow_run"].endswith(f"/runs/flow-run/{triggered}")


def test_a_person_approves_a_night_in_the_form_of_a_flow_run(
    orchestrator, third_night, monkeypatch
):
    monkeypatch.chdir(orchestrator.project.root)
    experiment = load_experiment("tiny", [], "local", "")
    night, ledger = "nightly-2026-11-21", NightLedger(experiment.store, "tiny")
    start = Champion(RunPolicy(night, 0), policy_of(experiment.store, night, 0))
    judged = Champion(RunPolicy(night, 1), policy_of(experiment.store, night, 1))
    asks = Judgement(Verdict(()), start, judged)
    ledger.append(night, "awaits_approval", "Success is 0.9 instead of 0.8.", details=asks)
    unanswered = orchestrator.started("promote", experiment="tiny", run=night, days=1e-5)
    orchestrator.wait(unanswered, "NotApproved")
    assert ledger.read().last(night, "not_approved").why == "Nobody answered within 1e-05 days."
    assert ledger.read().champion is None

    ledger.append(night, "awaits_approval", "Success is 0.9 instead of 0.8.", details=asks)
    approval = orchestrator.started("promote", experiment="tiny", run=night)
    orchestrator.wait(approval, "Paused")
    answer = {"run_input": {"approve": True, "reason": "It reads well."}}
    # once a resume right after the pause had no effect
    until(
        lambda: (
            orchestrator.http.post(f"/flow_runs/{approval}/resume", json=answer)
            .raise_for_status()
            .json()["status"]
            == "ACCEPT"
        )
    )
    orchestrator.wait(approval, "Promoted")
    assert (ledger.read().champion, ledger.read().entries[-1].why) == (judged, "It reads well.")


@pytest.mark.long
def test_a_run_waits_for_its_slot_and_survives_its_server(orchestrator):
    with held([slot(1, orchestrator.project.env["AGENTFLY_LOCKS"])], "the run mine", print):
        triggered = orchestrator.started(
            "train", experiment="tiny", run="waiting", overrides=["steps=1"]
        )
        until(
            lambda: (
                "Waiting for" in orchestrator.log(triggered)
                or orchestrator.state(triggered)["type"] in ENDED
            )
        )
        assert f"used by the run mine (process {os.getpid()} on " in orchestrator.log(triggered)
        orchestrator.restart_server()
    orchestrator.wait(triggered, "Completed")
