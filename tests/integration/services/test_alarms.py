"""Messages about nights go out through a real Prefect server with a password, and flow runs of dead
processes become Crashed.
"""

import datetime
import json
import subprocess
import sys
from dataclasses import replace

import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import get_client
from prefect.events import emit_event

from agentfly_core.reports.nights.night_ledger import NightEntry, NightLedger
from agentfly_core.store.store import Store
from agentfly_core.system.process import Owner
from flows.local.flow_run_owners import LABEL, crash_dead
from flows.local.prefect_server import deliver, use
from flows.nights.deployment_schedule import record_missed, scheduled_nights
from flows.nights.events import (
    ALARMS_BLOCK,
    NOTICES_BLOCK,
    create_automations,
    emit,
    nights,
    request_approval,
)
from tests.support.experiments import experiment as experiment_in
from tests.support.project import PROGRAMS
from tests.support.servers import receiver, request
from tests.support.waiting import until

NIGHT = "nightly-2026-11-21"


class Server:
    """A Prefect server with the deployments `nightly` and `promote`, which no worker starts."""

    def __init__(self, api: str) -> None:
        self.api = api
        self.flow = self.post("/flows/", name="nightly")["id"]
        self.nightly = self.deployed("nightly")
        approval = self.post("/flows/", name="promote")["id"]
        self.promote = self.post("/deployments/", flow_id=approval, name="promote")["id"]

    def post(self, path: str, **given: object) -> dict:
        return request("POST", self.api + path, json=given)

    def deployed(self, name: str, **given: object) -> str:
        return self.post("/deployments/", flow_id=self.flow, name=name, **given)["id"]

    def flow_run(self, deployment: str, **state: str) -> str:
        url = f"/deployments/{deployment}/create_flow_run"
        return self.post(url, state=state)["id"]

    def set_state(self, flow_run: str, **state: object) -> None:
        self.post(f"/flow_runs/{flow_run}/set_state", state=state, force=True)

    def label(self, flow_run: str, **labels: str) -> None:
        url = f"{self.api}/flow_runs/{flow_run}/labels"
        request("PATCH", url, json=labels)

    def forms(self) -> set[str]:
        """The flow runs of `promote` that ask about a night."""
        wanted = {"deployments": {"id": {"any_": [self.promote]}}}
        flow_runs = self.post("/flow_runs/filter", **wanted)
        return {flow_run["id"] for flow_run in flow_runs if flow_run["parameters"]}

    def state(self, flow_run: str) -> str:
        return request("GET", f"{self.api}/flow_runs/{flow_run}")["state"]["name"]


@pytest.fixture
def server(prefect_api, monkeypatch, tmp_path):
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    use(prefect_api)
    return Server(prefect_api)


@pytest.fixture
def people():
    """The address that both blocks call, which this makes and removes."""
    with receiver() as address:
        yield address


@pytest.fixture
def blocks(server, people):
    def block(path: str) -> CustomWebhookNotificationBlock:
        return CustomWebhookNotificationBlock(
            name="people",
            url="{{address}}",
            secrets={"address": f"{people.url}/{path}"},
            json_data={"text": "{{subject}}: {{body}}"},
        )

    block("alarm").save(ALARMS_BLOCK)
    block("notice").save(NOTICES_BLOCK)
    yield
    for name in (ALARMS_BLOCK, NOTICES_BLOCK):
        CustomWebhookNotificationBlock.delete(name)


def automate(**limits):
    """Create the automations of the server."""
    with get_client(sync_client=True) as client:
        create_automations(client, **limits)


def test_messages_of_nights_reach_the_alarm_or_notice_block(server, people, blocks):
    automate()
    for event, why in (
        ("finished", "It is reported, and nobody is called."),
        ("given_up", 'It was tried 3 times, and "no" more.\n'),
        ("kept", "It is not better: nightly-2026-11-20 stays champion."),
    ):
        emit("quickstart", NightEntry(1, 0, NIGHT, event, why))
    deliver()
    until(lambda: len(people.calls) >= 2)
    alarm, notice = sorted(people.calls)
    expected = f'AgentFly: {NIGHT} of quickstart, given up: It was tried 3 times, and "no" more.'
    assert json.loads(alarm.removeprefix("/alarm "))["text"].strip() == expected
    expected = f"AgentFly: {NIGHT} of quickstart, kept: It is not better: nightly-2026-11-20 stays"
    assert json.loads(notice.removeprefix("/notice "))["text"] == f"{expected} champion."


def test_only_failed_nights_and_approvals_are_reported(server, people, blocks):
    automate()
    for deployment, message in ((server.deployed("train"), "mine"), (server.nightly, "theirs")):
        flow_run = server.flow_run(deployment, type="RUNNING")
        server.set_state(flow_run, type="FAILED", message=message)
    for deployment, message in ((server.nightly, "x"), (server.promote, "y")):
        flow_run = server.flow_run(deployment, type="RUNNING")
        server.set_state(flow_run, type="CRASHED", message=message)
    until(lambda: len(people.calls) >= 3)
    ended = [json.loads(call.removeprefix("/alarm "))["text"] for call in people.calls]
    assert sorted(text.partition(" of ")[2] for text in ended) == [
        "nightly is Crashed: x",
        "nightly is Failed: theirs",
        "promote is Crashed: y",
    ]


def test_late_nights_are_reported_and_silent_runs_crash(server, people, blocks):
    """Both wait for a timeout, in parallel."""
    automate(late_s=10, silent_s=10)  # the least that a Prefect server can wait
    late = server.flow_run(server.nightly, type="SCHEDULED", name="Late")
    over, silent = (server.flow_run(server.deployed("train"), type="RUNNING") for _ in range(2))
    server.set_state(over, type="COMPLETED")
    for flow_run in (over, silent):  # the heartbeat of a short flow run may arrive after its end
        resource = {"prefect.resource.id": f"prefect.flow-run.{flow_run}"}
        emit_event("prefect.flow-run.heartbeat", resource)
    deliver()
    until(lambda: people.calls and server.state(silent) == "Crashed")
    (call,) = people.calls
    assert "has not started" in call
    assert (server.state(late), server.state(over)) == ("Late", "Completed")


def test_without_a_block_there_is_no_automation(server, blocks):
    automate()
    alarms = CustomWebhookNotificationBlock.load(ALARMS_BLOCK)
    CustomWebhookNotificationBlock.delete(ALARMS_BLOCK)
    automate()
    automations = request("POST", f"{server.api}/automations/filter", json={})
    names = {automation["name"] for automation in automations}
    assert "AgentFly: how a night ended" in names
    sent = {"alarm of a night", "nightly failed", "promote failed", "nightly is late"}
    assert names.isdisjoint({f"AgentFly: {alarm}" for alarm in sent})
    alarms.save(ALARMS_BLOCK)  # for the fixture to remove


def test_a_starting_worker_crashes_runs_of_dead_processes(server, tmp_path):
    program = (
        "import os, signal\nfrom prefect import flow, runtime\n"
        "from flows.local.flow_run_owners import sign\n@flow(flow_run_name='mine')\ndef killed():\n"
        "    sign()\n    print(runtime.flow_run.id, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\nkilled()\n"
    )
    words = [sys.executable, "-c", program]
    flow_run = subprocess.run(words, stdout=-1, text=True, check=False).stdout.strip()
    alive, elsewhere, unsigned, waiting, suspended = [
        server.flow_run(server.nightly, type="RUNNING") for _ in range(5)
    ]
    here = Owner.current()
    server.label(alive, **{LABEL: f"process-{here.mark}"})
    other = replace(here, host="trainer-2", pid=10**8)
    server.label(elsewhere, **{LABEL: f"process-{other.mark}"})
    dead = replace(here, pid=10**8)
    for paused, reschedule in ((waiting, False), (suspended, True)):
        server.label(paused, **{LABEL: f"process-{dead.mark}"})
        details = {"pause_reschedule": reschedule}
        server.set_state(paused, type="PAUSED", state_details=details)
    assert server.state(flow_run) == "Running"

    start = [PROGRAMS / "agentfly", "prefect", "worker", "start", "--help"]
    printed = subprocess.run(start, cwd=tmp_path, stdout=-1, text=True, check=True).stdout
    assert f"The flow run mine ({flow_run}) is marked Crashed: its process is dead." in printed
    assert server.state(flow_run) == server.state(waiting) == "Crashed"
    assert server.state(suspended) == "Paused"
    assert {server.state(one) for one in (alive, elsewhere, unsigned)} == {"Running"}
    assert crash_dead() == []


def test_an_approval_is_requested_by_a_flow_run(server, tmp_path):
    experiment = experiment_in(tmp_path)
    before = server.forms()
    ledger = NightLedger(experiment.store, experiment.name)
    request_approval(ledger, NIGHT, experiment.site.name)
    (form,) = server.forms() - before
    assert server.state(form) == "Scheduled"


def test_expected_nights_follow_the_active_schedules(server):
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    daily = {"cron": "0 12 * * *", "timezone": "UTC"}
    twice = {"interval": 43200, "anchor_date": now.isoformat()}
    server.deployed(
        "nightly",
        parameters={"experiment": "quickstart"},
        schedules=[
            {"schedule": daily, "active": True},
            {"schedule": twice, "active": True, "parameters": {"experiment": "shop"}},
            {"schedule": daily, "active": False, "parameters": {"experiment": "mine"}},
        ],
    )
    # times before the creation of the schedules are not expected
    until_then = now + 5 * day
    expected = scheduled_nights("quickstart", now - 5 * day, until_then)
    assert len(expected) in (4, 5, 6) and expected == sorted(expected)
    assert now.date() <= expected[0]
    assert len(scheduled_nights("shop", now - 5 * day, until_then)) in (5, 6)
    assert scheduled_nights("mine", now - 5 * day, until_then) == []


def test_a_missed_night_is_recorded_and_reported_once(server, people, blocks, tmp_path):
    automate()
    daily = {"schedule": {"cron": "0 12 * * *", "timezone": "UTC"}, "active": True}
    server.deployed("nightly", parameters={"experiment": "quickstart"}, schedules=[daily])
    today = datetime.datetime.now(datetime.UTC).date()
    first, last = (today + datetime.timedelta(days=days) for days in (1, 4))
    ledger = NightLedger(Store.at(str(tmp_path), tmp_path), "quickstart")
    record_missed(ledger, last)
    ledger.append(f"nightly-{first}", "began")
    ledger.append(f"nightly-{first}", "promoted")  # by a person, days later

    record_missed(ledger, last)
    record_missed(ledger, last)
    deliver()
    missed = [entry.night for entry in ledger.read().entries if entry.event == "missed"]
    assert missed == [f"nightly-{today + datetime.timedelta(days=days)}" for days in (2, 3)]
    until(lambda: len(people.calls) >= 2)
    assert all(
        "of quickstart, missed: The night was scheduled for" in call for call in people.calls
    )


def test_the_doctor_names_missing_parts_for_nights(server, blocks, monkeypatch):
    server.deployed("nightly", schedules=[{"schedule": {"cron": "0 2 * * *"}, "active": True}])
    assert nights(server.api, "").detail == (
        "schedule on, a block agentfly-alarms, ping_url_env not set"
    )
    assert nights(server.api, "").ok
    monkeypatch.delenv("MY_PING", raising=False)
    finding = nights(server.api, "MY_PING")
    assert not finding.ok and "MY_PING not set" in finding.detail
    server.deployed("nightly", schedules=[])
    assert not nights(server.api, "").ok
