"""DVC versions the dataset of an experiment and reproduces it, killed or not."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import yaml
from project import Project

from agentfly_core import experiment
from agentfly_core.versioning import Unversioned, Version, dataset_version, pipeline


@pytest.fixture(scope="module")
def project(tmp_path_factory, prefect_api):
    return Project.clone(tmp_path_factory.mktemp("dvc"), PREFECT_API_URL=prefect_api)


@pytest.fixture()
def surroundings(project, monkeypatch):
    """The project's folder and environment, for calls within this process."""
    monkeypatch.chdir(project.root)
    for name in ("PATH", "PREFECT_API_URL", "AGENTFLY_SAMPLER"):
        monkeypatch.setenv(name, project.env[name])
    monkeypatch.delenv("DVC_STAGE", raising=False)
    return project.root


def science(*overrides):
    return experiment.read("tiny", overrides).science


def stages_run(printed):
    return [line.split("'")[1] for line in printed.splitlines() if line.startswith("Running stage")]


def test_the_dataset_has_the_version_that_dvc_lock_names(surroundings):
    version = dataset_version("tiny", science(), surroundings)
    assert isinstance(version, Version)
    assert version.path == "data/generated/tiny"
    assert version.md5.endswith(".dir")
    assert version.md5 in (surroundings / "dvc.lock").read_text()
    assert {path.name for path in (surroundings / version.path).iterdir()} >= {"train.parquet", "test.parquet"}
    assert dataset_version("tiny", science("steps=9"), surroundings) == version


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("tiny", ["data.train=12"], "data overridden"),
        ("tiny", ["data.train=12", "seed=3"], "data and seed overridden"),
        ("mine", [], "the experiment is not in conf/"),
    ],
)
def test_other_data_has_no_version_and_says_why(surroundings, name, overrides, reason):
    assert dataset_version(name, science(*overrides), surroundings) == Unversioned(reason)


def test_started_by_dvc_nobody_calls_dvc(surroundings, monkeypatch):
    monkeypatch.setenv("DVC_STAGE", "train")
    assert isinstance(dataset_version("tiny", science(), surroundings), Unversioned)


def test_data_that_cannot_be_built_stops_with_the_reason(surroundings):
    broken = yaml.safe_load((surroundings / "conf/tiny.yaml").read_text())
    broken["data"]["operators"] = "/"
    (surroundings / "conf/broken.yaml").write_text(yaml.safe_dump(broken))
    with pytest.raises(ValueError, match="Got the operators"):
        dataset_version("broken", experiment.read("broken").science, surroundings)


def test_what_is_no_experiment_of_the_project_is_refused(surroundings):
    with pytest.raises(ValueError, match="Got 'quickstrat'"):
        pipeline("quickstrat", surroundings)


def test_killed_in_the_middle_of_training_repro_goes_on_and_then_has_nothing_to_do(project):
    repro = project.start("dvc", "repro")
    for line in repro.stdout:
        if line.startswith("Running stage 'train'"):
            break
    run = wait_for_step(project.root)
    kill(repro)
    first = next(run.glob("steps/000001/policy/MANIFEST.json")).stat().st_mtime_ns

    assert stages_run(project.run("dvc", "repro")) == ["train", "evaluate"]
    assert next(run.glob("steps/000001/policy/MANIFEST.json")).stat().st_mtime_ns == first
    policy = json.loads((project.root / "results/tiny/policy.json").read_text())
    assert policy["uri"] == f"runs/{run.name}/steps/000002/policy"
    assert stages_run(project.run("dvc", "repro")) == []


def test_metrics_and_plots_show_what_was_reproduced(project):
    shown = project.run("dvc", "metrics", "show", "--json")
    files = json.loads(shown)[""]["data"]
    assert files["results/tiny/summary.json"]["data"]["experiment"] == "tiny"
    assert 0 <= files["results/tiny/evaluation.json"]["data"]["success"] <= 1
    page = Path(project.run("dvc", "plots", "show").strip().removeprefix("file://"))
    assert "results/tiny/steps.csv" in page.read_text()


def test_a_changed_value_reruns_what_depends_on_it_and_no_more(project):
    path = project.root / "conf/tiny.yaml"
    written = path.read_text()
    path.write_text(written + "evaluate: {temperature: 0.5}\n")
    assert stages_run(project.run("dvc", "repro", "--dry")) == ["resolve"]
    project.run("dvc", "repro", "resolve")
    assert stages_run(project.run("dvc", "repro", "--dry")) == ["train", "evaluate"]
    path.write_text(written)
    assert stages_run(project.run("dvc", "repro")) == ["resolve"]


def test_another_experiment_has_a_lock_and_results_of_its_own(project):
    before = (project.root / "dvc.lock").read_text()
    (project.root / "conf/other.yaml").write_text((project.root / "conf/tiny.yaml").read_text() + "seed: 5\n")
    printed = project.run("agentfly", "repro", "other")
    assert stages_run(printed)[0] == "results/other/dvc.yaml:resolve"
    assert (project.root / "results/other/dvc.lock").exists()
    assert (project.root / "dvc.lock").read_text() == before
    assert "results/other/summary.json" in project.run("dvc", "metrics", "show")


def wait_for_step(root):
    """The folder of the one run, once its first step has published a policy."""
    ...


def kill(process):
    """SIGKILL a command and all that it started."""
    family = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    for child in family:
        child.kill()
    process.wait()
