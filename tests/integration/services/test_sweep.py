"""A sweep of real runs, killed after the first one."""

import json
from pathlib import Path

import pytest

from agentfly_core.reports.compare.sweep import is_finished
from agentfly_core.store.store import Store
from tests.support.project import PROGRAMS, Project
from tests.support.waiting import until

SWEEP = (
    str(PROGRAMS / "agentfly"),
    *("sweep", "tiny", "update.learning_rate=1e-4,3e-4", "steps=1", "--name", "rates"),
)


@pytest.mark.long
def test_a_killed_sweep_resumes_at_its_current_run(tmp_path: Path, prefect_api: str) -> None:
    home = str(tmp_path / "home")
    env = {"PREFECT_API_URL": prefect_api, "PREFECT_HOME": home}
    project = Project.clone(tmp_path / "project", AGENTFLY_LOCKS=str(tmp_path), **env)
    store = Store.at(str(project.root), tmp_path / "cache")
    sweep = project.start(*SWEEP)
    until(lambda: store.names("runs"), sweep)
    (first,) = store.names("runs")
    record = project.root / "runs" / first / "run.json"
    until(lambda: is_finished(store, first), sweep)
    sweep.kill()
    sweep.wait()
    uid = json.loads(record.read_text())["uid"]

    printed = project.run(*SWEEP)
    assert "Sweep rates: 2 runs, 1 finished." in printed
    assert "Run 1 of 2" not in printed
    assert "Run 2 of 2: update.learning_rate=3e-4\n" in printed
    (second,) = {*store.names("runs")} - {first}
    assert is_finished(store, second)
    assert json.loads(record.read_text())["uid"] == uid
    assert printed.splitlines()[-1] == "The same again: agentfly compare sweep:rates"
    again = project.run(str(PROGRAMS / "agentfly"), "compare", "sweep:rates")
    assert again.splitlines()[-1] == printed.splitlines()[-2]
    assert "points" in printed.splitlines()[-2]
