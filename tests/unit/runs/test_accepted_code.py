"""A run that continues after its author accepted changed code."""

import pytest

from agentfly_core.experiment.user_code import accept_code
from agentfly_core.runs.run import opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.store.artifact import ArtifactKey
from tests.support.own_code import POLICY, PROJECT, author_folder, edit, here, stage_keys


@pytest.fixture
def project(tmp_path, monkeypatch):
    yield from author_folder(tmp_path, monkeypatch)


def test_accepted_data_edits_keep_problems_and_warm_start(project):
    (project / "prices.csv").write_text("tea,3\n")
    with opened(here(project, code_files=["prices.csv"]), "demo") as run:
        before = stage_keys(run.settings)
        run.remember_start(POLICY)
    (project / "prices.csv").write_text("tea,4\n")
    now = here(project, code_files=["prices.csv"])
    accept_code(now.store, "demo", now.settings.code)
    with opened(now, "demo") as run:
        after = stage_keys(run.settings)
    assert {stage for stage in before if before[stage] != after[stage]} == {
        "rollout",
        "evaluate",
        "score",
    }


def test_accepted_code_plays_the_rest_and_run_json_records_it(project):
    with opened(here(project), "demo") as run:
        before = run.settings
        with run.store.publish(ArtifactKey(run.layout.step(1).policy, "update", "key", {})):
            pass
        run.remember_start(POLICY)
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    edit("own_data", f"{PROJECT['own_data']}MORE = 1\n")
    now = here(project)
    accept_code(now.store, "demo", now.settings.code)
    with opened(here(project), "demo") as run:
        first, second = (stage_keys(run.at(step).settings) for step in (1, 2))
        assert first == stage_keys(before)
        assert second["rollout"] != first["rollout"]
        assert second["prepare"] == first["prepare"]  # the problems stay the same
        (change,) = run.record["accepted_code"]
    assert (change["step"], change["modules"]) == (1, ["own_data", "own_tools"])
    assert change["before"] == before.code


def test_notes_name_the_command_that_continues_an_unfinished_run(project):
    with opened(here(project), "old") as run:
        pass
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    notes = "\n".join(RunRequest(here(project), "new").notes("agentfly train own"))
    begins = "Starting new. The run old has the same settings, but other code of own_prices."
    other = "To continue old instead:\n  agentfly train own --run old --accept-code"
    assert notes == f"{begins}\n{other}"
    run.store.write_json(run.layout.summary, {"steps": 2})
    assert [*RunRequest(here(project), "new").notes("agentfly train own")] == [begins]


@pytest.mark.parametrize(
    ("update", "remedy"),
    [
        ({}, "To continue old instead:\n  agentfly train own steps=3 --run old"),
        ({"lr_scheduler_type": "linear"}, "agentfly fork old@STEP steps=3`."),
    ],
)
def test_notes_name_the_command_that_makes_a_run_longer(project, update, remedy):
    with opened(here(project, update=update), "old") as run:
        run.store.write_json(run.layout.summary, {"steps": 2})
    longer = RunRequest(here(project, update=update, steps=3), "new")
    first, second = longer.notes("agentfly train own steps=3")
    assert first == "Starting new. The run old has the same settings, but steps=2."
    assert second.endswith(remedy)


def test_a_finished_run_does_not_continue_with_other_code(project):
    with opened(here(project), "demo") as run:
        run.store.write_json(run.layout.summary, {"steps": 2})
    RunRequest(here(project), "demo").check(accept=True)
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    with pytest.raises(ValueError, match=r"The code of own_prices changed.*'demo'"):
        RunRequest(here(project), "demo").check(accept=True)
    assert "accepted_code" not in run.record
    RunRequest(here(project, steps=3), "demo").check(accept=True)
    assert len(run.record["accepted_code"]) == 1
