"""A run: its name, its single writer, and the changes with which it may continue."""

import fcntl
import os
import subprocess
import sys

import pytest

from agentfly_core.experiment.continuing import refuse_other_settings
from agentfly_core.experiment.run_policies import final_policy
from agentfly_core.records import ledger
from agentfly_core.records.ledger import LedgerRow
from agentfly_core.runs.run import known_run, opened, problems_played, recorded_settings
from agentfly_core.sandbox.preflight import chosen
from agentfly_core.store.artifact import ArtifactKey, Pointer
from agentfly_core.store.lock import Locked, local_lock
from agentfly_core.system.formats.checksummed_json import Damaged
from agentfly_core.system.service import SANDBOX
from tests.support.experiments import experiment

HOLD = """
import sys; from pathlib import Path; from agentfly_core.store.lock import local_lock
with local_lock(Path(sys.argv[1])):
    print("held", flush=True); sys.stdin.read()
"""


def test_the_same_settings_are_the_same_run_and_others_another(tmp_path):
    assert experiment(tmp_path).run_name(
        "",
        False,
    ) == experiment(tmp_path).run_name(
        "",
        False,
    )
    assert experiment(tmp_path).run_name(
        "",
        False,
    ) != experiment(tmp_path, seed=1).run_name(
        "",
        False,
    )


def test_new_makes_a_repeat(tmp_path):
    for expected in ("demo", "demo-2", "demo-3"):
        assert (
            experiment(tmp_path).run_name(
                "demo",
                True,
            )
            == expected
        )
        with opened(experiment(tmp_path), expected):
            pass


def test_a_run_keeps_its_identity_when_it_is_continued(tmp_path):
    with opened(experiment(tmp_path), "demo") as first:
        first.link("prefect_flow_run_ids", "5f0e")
    with opened(experiment(tmp_path, steps=9), "demo") as again:
        assert (again.uid, again.settings.steps, again.links("prefect_flow_run_ids")) == (
            first.uid,
            9,
            ["5f0e"],
        )


def test_the_record_of_a_run_names_its_dataset(tmp_path):
    here = experiment(tmp_path)
    with opened(here, "demo") as run:
        run.remember_data(Pointer("artifacts/prepare/77b0", "9f2c"), "dc97.dir")
    with opened(here, "demo") as run:
        assert (run.record["dataset_digest"], run.record["dataset_version"]) == ("9f2c", "dc97.dir")


@pytest.mark.usefixtures("sandbox")
@pytest.mark.parametrize(
    "parts",
    [
        {"tools": ["agentfly_core.tools.python:python"]},
        {"rewards": {"agentfly_core.rewards.code_tests:code_tests": 1.0}},
        {"agent": {"use": "program", "command": ["python", "a.py"], "sandbox": True}},
    ],
)
def test_the_record_of_a_run_names_its_sandbox(tmp_path, monkeypatch, parts):
    for backend in (chosen().backend.name, "unsafe"):
        monkeypatch.setenv(SANDBOX, backend)
        with opened(experiment(tmp_path, **parts), "demo") as run:
            run.remember_sandbox()
            assert run.record["sandbox"] == backend
        chosen().close()  # a named backend is another setting


def test_a_run_without_model_code_records_no_sandbox(tmp_path, monkeypatch):
    monkeypatch.setenv(SANDBOX, "bubblewrap")
    monkeypatch.setenv("PATH", "")
    with opened(
        experiment(tmp_path, tools=["agentfly_core.tools.calculator:calculator"]), "demo"
    ) as run:
        run.remember_sandbox()
        assert "sandbox" not in run.record


def flip(path):
    """Change one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 128
    path.write_bytes(content)


def test_a_damaged_record_is_refused_with_a_working_remedy(tmp_path):
    here = experiment(tmp_path)
    with opened(here, "demo"):
        pass
    path = here.store.root / "runs/demo/run.json"
    flip(path)
    for _ in range(2):
        with (
            pytest.raises(Damaged, match=rf"^{path} is damaged.*, remove it, and repeat"),
            opened(here, "demo"),
        ):
            pass
    assert here.run_name("demo", True) == "demo-2"
    path.unlink()
    with opened(here, "demo") as run:
        assert run.record["experiment"] == "tiny"


def test_damaged_files_that_can_be_rebuilt_do_not_stop_a_run(tmp_path, caplog):
    here = experiment(tmp_path)
    with opened(here, "demo") as run:
        run.link("prefect_flow_run_ids", "5f0e")
        here.store.write_json("runs/demo/summary.json", {"steps": 2})
        assert run.finished
        for name in ("links.json", "summary.json"):
            flip(here.store.root / "runs/demo" / name)
        assert run.finished is None
        assert run.links("prefect_flow_run_ids") == []
        messages = [record.getMessage() for record in caplog.records]
        assert [
            "summary.json is damaged" in messages[0],
            "links.json is damaged" in messages[1],
        ] == [
            True,
            True,
        ]
        run.link("prefect_flow_run_ids", "77b0")
        assert run.links("prefect_flow_run_ids") == ["77b0"]


def test_a_damaged_policy_is_not_replaced_by_an_older_one(tmp_path):
    here = experiment(tmp_path)
    for step in (1, 2):
        with here.store.publish(
            ArtifactKey(f"runs/base/steps/{step:06d}/policy", "update", str(step), {})
        ):
            pass
    assert final_policy(here.store, "base").uri == "runs/base/steps/000002/policy"
    flip(here.store.root / "runs/base/steps/000002/policy/MANIFEST.json")
    with pytest.raises(Damaged, match=r"000002/policy/MANIFEST\.json is damaged"):
        final_policy(here.store, "base")


def test_other_settings_of_a_named_run_are_refused_by_key(tmp_path):
    with opened(experiment(tmp_path), "demo"):
        pass
    with (
        pytest.raises(ValueError, match=r"seed: 0 -> 1"),
        opened(experiment(tmp_path, seed=1), "demo"),
    ):
        pass


def test_stages_of_another_version_are_refused_with_a_remedy(tmp_path):
    here = experiment(tmp_path)
    with opened(here, "demo"):
        record = here.store.read_json("runs/demo/run.json")
        here.store.write_json("runs/demo/run.json", record | {"stages": {"rollout": 0}})
    with pytest.raises(ValueError, match=r"'rollout': 0.*--new"), opened(here, "demo"):
        pass


def test_settings_of_another_version_are_refused_by_file_and_key(tmp_path):
    with opened(experiment(tmp_path), "demo") as run:
        record = {**run.record, "settings": {**run.record["settings"], "ema": 0.9}}
    message = r"runs/demo/run\.json: ema: Extra inputs are not permitted.* `git checkout "
    with pytest.raises(ValueError, match=message):
        recorded_settings(record)


def test_a_second_writer_is_refused_with_the_owners_process(tmp_path):
    here = experiment(tmp_path)
    folder = here.store.root / "runs/demo"
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=-1, stdout=-1, cwd=os.getcwd()
    )
    assert other.stdout.readline() == b"held\n"
    with pytest.raises(Locked, match=f"process {other.pid}"), opened(here, "demo"):
        pass
    other.kill()
    other.wait()
    with (
        opened(here, "demo"),
        pytest.raises(Locked, match=f"process {os.getpid()}"),
        opened(here, "demo"),
    ):
        pass


def test_the_last_policy_is_read_or_its_absence_reported(tmp_path):
    here = experiment(tmp_path)
    for step in (1, 2):
        with here.store.publish(
            ArtifactKey(f"runs/demo/steps/{step:06d}/policy", "update", str(step), {})
        ) as folder:
            (folder / "model").write_text(str(step))
    assert final_policy(here.store, "demo").uri.endswith("000002/policy")
    with pytest.raises(ValueError, match="store: demo"):
        final_policy(here.store, "dmo")


def test_a_run_cannot_continue_with_fewer_steps(tmp_path):
    with opened(experiment(tmp_path, steps=3), "demo") as run:
        for step in (1, 2, 3):
            with run.store.publish(
                ArtifactKey(f"runs/demo/steps/{step:06d}/policy", "update", str(step), {})
            ) as folder:
                (folder / "model").write_text(str(step))
    with (
        pytest.raises(ValueError, match=r"has finished 3 steps already, but steps is 2.*to 3"),
        opened(experiment(tmp_path, steps=2), "demo"),
    ):
        pass
    with opened(experiment(tmp_path, steps=4), "demo"):
        pass


def test_other_code_is_reported_by_its_commits(tmp_path, caplog, monkeypatch):
    edited, unknown = {"commit": "4f0c", "dirty": "9f2c"}, {"commit": "", "dirty": ""}
    monkeypatch.setattr("agentfly_core.runs.run.revision", lambda: edited)
    with opened(experiment(tmp_path), "demo"):
        monkeypatch.setattr("agentfly_core.experiment.continuing.revision", lambda: unknown)
    with opened(experiment(tmp_path), "demo"):
        before = "The run was started with the code of commit 4f0c with uncommitted changes"
        assert f"{before} (digest 9f2c), and continues with the code of an unknown" in caplog.text


def test_steps_cannot_change_where_the_learning_rate_needs_them(tmp_path):
    def here(steps):
        return experiment(tmp_path, steps=steps, update={"lr_scheduler_type": "linear"})

    with opened(here(3), "demo") as run:
        run.ending_at(2)
    for steps in (2, 3):
        with opened(here(steps), "demo"):
            pass
    with (
        pytest.raises(ValueError, match=r"steps is 4, but .* steps=3\. .*agentfly fork demo@STEP"),
        opened(here(4), "demo"),
    ):
        pass


@pytest.mark.parametrize("name", ["../elsewhere", "a b", "/tmp/x", ".hidden", "a/b"])
def test_a_name_that_cannot_be_a_folder_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="expected letters, digits"):
        experiment(tmp_path).run_name(
            name,
            False,
        )


def test_a_run_does_not_continue_with_other_data(tmp_path):
    with opened(experiment(tmp_path), "demo") as run:
        run.remember_data(Pointer("artifacts/prepare/77b0", "ab" * 32), "none")
        run.remember_data(Pointer("artifacts/prepare/77b0", "ab" * 32), "none")
        with pytest.raises(
            ValueError,
            match=r"dataset abababababab, .* cdcdcdcdcdcd",
        ):
            run.remember_data(Pointer("artifacts/prepare/13f9", "cd" * 32), "none")


def test_a_run_is_refused_after_its_model_folder_changed(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "model.safetensors").write_text("weights")
    here = experiment(tmp_path, model=str(folder))
    for _ in range(2):
        with opened(here, "demo"):
            pass
    (folder / "model.safetensors").write_text("others")
    with pytest.raises(ValueError, match=r"model: .* other files in .*mine .* --run NAME or --new"):
        refuse_other_settings(known_run(here.store, "demo"), here.settings)
    with pytest.raises(ValueError, match="with other files"), opened(here, "demo"):
        pass


def test_a_finished_run_outlives_its_model_folder(tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "model.safetensors").write_text("weights")
    here = experiment(tmp_path, model=str(folder))
    with opened(here, "demo"):
        pass
    (folder / "model.safetensors").unlink()
    refuse_other_settings(known_run(here.store, "demo"), here.settings)


def test_a_run_that_is_refused_at_its_start_leaves_nothing(tmp_path):
    here = experiment(tmp_path)
    with pytest.raises(ValueError, match="no such model"), opened(here, "demo") as run:
        run.link("prefect_flow_run_ids", "5f0e")
        raise ValueError("no such model")
    assert list((here.store.root / "runs").iterdir()) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, ValueError])
def test_an_interrupted_or_older_run_is_not_removed(tmp_path, error):
    here = experiment(tmp_path)
    if error is ValueError:
        with opened(here, "demo"):
            pass
    with pytest.raises(error), opened(here, "demo"):
        raise error
    assert here.store.names("runs/demo") == ["lock.json", "run.json"]


def test_a_run_that_began_its_steps_is_not_removed(tmp_path):
    here = experiment(tmp_path)
    with pytest.raises(ValueError, match="later"), opened(here, "demo") as run:
        run.remember_start(Pointer("artifacts/model/1f2e", "77b0"))
        raise ValueError("later")
    assert here.store.names("runs/demo") == ["lock.json", "run.json", "start.json"]


def test_the_lock_of_a_removed_run_is_not_taken(tmp_path, monkeypatch):
    flock = fcntl.flock

    def removed_before(file, how):
        (tmp_path / "demo/lock.json").unlink()
        flock(file, how)

    monkeypatch.setattr(fcntl, "flock", removed_before)
    with (
        pytest.raises(Locked, match="by another process"),
        local_lock(tmp_path / "demo"),
    ):
        pass


def scored(run, step, problems):
    """Publish a scored step of `problems` problems."""
    rows = [
        LedgerRow(step, "single", f"p{number}", 1, 1, 0.0, "used") for number in range(problems)
    ]
    uri = run.layout.step(step).scored
    with run.store.publish(ArtifactKey(uri, "score", uri, {})) as folder:
        ledger.write(folder, rows)


def test_problems_before_a_step_are_counted_with_one_read_each(tmp_path, monkeypatch):
    read, problems = [], ledger.problems
    monkeypatch.setattr(ledger, "problems", lambda *of: read.append(of) or problems(*of))
    with opened(experiment(tmp_path, steps=4), "demo") as run:
        for step, count in enumerate((3, 1, 2), 1):
            assert run.problems_before(step)["single"] == (0, 3, 4)[step - 1]
            scored(run, step, count)
        assert run.problems_before(4) == {"single": 6}
        assert len(read) == 3
        assert [run.problems_before(step)["single"] for step in (1, 2, 3)] == [0, 3, 4]
    assert len(read) == 3


def test_steps_played_ahead_of_the_deadline_do_not_count(tmp_path):
    with opened(experiment(tmp_path, steps=4), "demo") as run:
        for step in (1, 2, 3):
            scored(run, step, 2)
        assert problems_played(run.store, "demo") == {"single": 6}
        run.ending_at(2)
    assert problems_played(run.store, "demo") == {"single": 4}
    assert problems_played(run.store, "another") == {}
