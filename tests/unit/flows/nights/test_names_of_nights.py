"""The name of a night's run, and the settings of one that is resumed."""

import datetime
import shutil

from agentfly_core.reports.nights.nights import name_of_night, recorded_changes
from agentfly_core.runs.run import opened
from flows.experiments import load_experiment
from tests.support.project import Project


def test_two_experiments_may_train_in_the_same_night(tmp_path, monkeypatch):
    monkeypatch.chdir(Project.clone(tmp_path / "project").root)
    shutil.copy("conf/tiny.yaml", "conf/small.yaml")
    tiny, small = (load_experiment(name, [], "local", "") for name in ("tiny", "small"))
    date = datetime.date(2026, 11, 20)
    with opened(tiny, name_of_night(tiny.store, "tiny", date)):
        pass
    assert name_of_night(tiny.store, "tiny", date) == "nightly-2026-11-20"
    assert name_of_night(small.store, "small", date) == "nightly-2026-11-20-small"


def test_a_resumed_night_keeps_its_original_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(Project.clone(tmp_path / "project").root)
    first = load_experiment(
        "tiny", ["steps=5", "warm_start=null", "algorithm.skip_cut=true"], "local", ""
    )
    with opened(first, "nightly-2026-11-20"):
        pass
    today = load_experiment("tiny", [], "local", "").settings.model_dump(mode="json")
    changes = recorded_changes(first.store, "nightly-2026-11-20", "tiny", today)
    assert {change.partition("=")[0] for change in changes} == {"steps", "warm_start", "algorithm"}
    assert load_experiment("tiny", changes, "local", "").settings == first.settings
