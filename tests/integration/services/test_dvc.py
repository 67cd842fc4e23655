"""DVC versions the dataset of an experiment and reproduces the experiment, killed or not."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import yaml

from agentfly_core.config import loading
from agentfly_core.runs.versioning import dataset_version, pipeline
from agentfly_core.store.store import Store
from tests.support.processes import command
from tests.support.project import Project
from tests.support.waiting import LIMIT, until


@dataclass(frozen=True)
class Reproduction:
    """A project in which `dvc repro` was killed while training, run again, and run once more."""

    project: Project
    run: Path
    published_before_the_kill: dict[str, int]
    stages_after_the_kill: list[str]
    stages_the_last_time: list[str]

    def results(self, name: str) -> dict:
        return json.loads((self.project.root / "results/tiny" / name).read_text())


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory, prefect_api):
    project = Project.clone(tmp_path_factory.mktemp("dvc"), PREFECT_API_URL=prefect_api)
    repro = project.start("dvc", "repro")
    until(lambda: to_stay(project.root), repro)
    kill_tree(repro)
    (run,) = (project.root / "runs").iterdir()
    before = to_stay(project.root)
    again, once_more = (
        stages_run(project.run("dvc", "repro")),
        stages_run(project.run("dvc", "repro")),
    )
    return Reproduction(project, run, before, again, once_more)


@pytest.fixture()
def root(tmp_path, prefect_api, monkeypatch):
    """A fresh project, in which calls within this process take place."""
    return enter(Project.clone(tmp_path / "project", PREFECT_API_URL=prefect_api), monkeypatch)


def enter(project: Project, monkeypatch) -> Path:
    monkeypatch.chdir(project.root)
    for name, value in project.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("DVC_STAGE", raising=False)
    return project.root


def published(root: Path) -> dict[str, int]:
    """The policies of steps that are there, with the time at which each was published."""
    return {
        str(path): path.stat().st_mtime_ns
        for path in root.glob("runs/*/steps/*/policy/MANIFEST.json")
    }


def to_stay(root: Path) -> dict[str, int]:
    """Those of them that a run continues from: their learner state is there, too."""
    beside = "../../learner/MANIFEST.json"
    return {
        path: time
        for path, time in published(root).items()
        if Path(path, beside).resolve().exists()
    }


def stages_run(printed: str) -> list[str]:
    return [line.split("'")[1] for line in printed.splitlines() if line.startswith("Running stage")]


def children(process) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def kill_tree(process) -> None:
    """SIGKILL a command and its child processes."""
    family = children(process)
    os.killpg(process.pid, signal.SIGKILL)
    for child in family:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    process.communicate()


def store_of(project: Project) -> Store:
    return Store.at(str(project.root), project.root / "cache")


def settings_with(*overrides: str):
    return loading.read("tiny", overrides).settings


def test_a_killed_repro_resumes_from_the_files_on_disk(reproduction):
    assert reproduction.stages_after_the_kill == ["train", "evaluate"]
    assert (
        reproduction.published_before_the_kill.items()
        <= published(reproduction.project.root).items()
    )
    assert (
        reproduction.results("policy.json")["uri"]
        == f"runs/{reproduction.run.name}/steps/000002/policy"
    )


def test_a_second_repro_does_nothing(reproduction):
    assert reproduction.stages_the_last_time == []


def test_metrics_and_plots_show_the_reproduced_run(reproduction):
    shown = json.loads(reproduction.project.run("dvc", "metrics", "show", "--json"))[""]["data"]
    assert shown["results/tiny/summary.json"]["data"]["steps"] == 2
    assert (
        shown["results/tiny/evaluation.json"]["data"]["success"]
        == reproduction.results("summary.json")["success_after"]
    )
    page = reproduction.project.run("dvc", "plots", "show").strip().removeprefix("file://")
    assert "results/tiny/steps.csv" in Path(page).read_text()


def test_a_changed_value_reruns_only_dependent_stages(reproduction):
    project = reproduction.project
    conf = project.root / "conf" / "tiny.yaml"
    written = conf.read_text()
    conf.write_text(f"{written}evaluate:\n  temperature: 0.5\n")
    assert stages_run(project.run("dvc", "repro", "resolve")) == ["resolve"]
    assert list(json.loads(project.run("dvc", "status", "--json"))) == ["train", "evaluate"]
    conf.write_text(written)
    assert stages_run(project.run("dvc", "repro")) == []


def test_another_clone_pulls_instead_of_running(reproduction, tmp_path):
    """A folder is the remote; the policy comes along with DVC's small files."""
    project, run = reproduction.project, reproduction.run.name
    remote = ("dvc", "remote", "add", "--force", "--default", "shared", str(tmp_path / "shared"))
    project.run(*remote)
    project.run("dvc", "push")
    assert f"{tmp_path / 'shared/agentfly'} now has runs/" in project.run("agentfly", "push", run)
    other = Project.clone(tmp_path / "other")
    shutil.copy(project.root / "dvc.lock", other.root)
    other.run(*remote)
    other.run("dvc", "pull")
    assert stages_run(other.run("dvc", "repro")) == []
    other.run("agentfly", "pull", run)
    named = json.loads((other.root / "results/tiny/policy.json").read_text())
    assert store_of(other).artifact(named["uri"]).digest == named["digest"]
    other.run("agentfly", "export", f"run:{run}", str(tmp_path / "exported"))
    assert "0 artifacts copied" in other.run("agentfly", "pull", run)


@pytest.mark.long
def test_a_dvc_experiment_is_a_separate_run_in_the_same_store(reproduction):
    project = reproduction.project
    for words in (
        ["add", "--all"],
        ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"],
    ):
        subprocess.run(["git", *words], cwd=project.root, check=True)
    before = {*(project.root / "runs").iterdir()}
    changed = "overrides=['update.learning_rate=1e-3']"
    project.run("dvc", "exp", "run", "--temp", "--name", "faster", "-S", changed)
    (run,) = {*(project.root / "runs").iterdir()} - before
    record = json.loads((run / "run.json").read_text())
    assert record["settings"]["update"]["learning_rate"] == 1e-3
    assert "\nfaster," in project.run("dvc", "exp", "show", "--csv")


@pytest.mark.long
def test_a_rebuilt_run_has_the_same_bytes(reproduction):
    project, run = reproduction.project, reproduction.run.name
    printed = project.run("agentfly", "verify", run)
    assert re.search(rf"(\d+) of \1 artifacts of {run} are identical", printed)


def test_a_dataset_has_the_version_that_dvc_lock_names(reproduction, monkeypatch):
    root = enter(reproduction.project, monkeypatch)
    version = dataset_version("tiny", settings_with(), root)
    assert version.endswith(".dir")
    assert version in (root / "dvc.lock").read_text()
    assert sorted(path.stem for path in (root / "data/generated/tiny").iterdir()) == [
        "test",
        "train",
        "validation",
    ]
    assert dataset_version("tiny", settings_with("steps=9"), root) == version


@pytest.mark.long
def test_another_experiment_has_a_lock_and_a_version_of_its_own(reproduction, monkeypatch):
    root = enter(reproduction.project, monkeypatch)
    lock = (root / "dvc.lock").read_text()
    (root / "conf/other.yaml").write_text((root / "conf/tiny.yaml").read_text() + "seed: 5\n")
    version = dataset_version("other", loading.read("other").settings, root)
    assert version in (root / "results/other/dvc.lock").read_text()
    assert version not in lock == (root / "dvc.lock").read_text()


@pytest.mark.parametrize(
    ("name", "overrides", "reason"),
    [
        ("tiny", ["data.train=12"], "data or seed overridden"),
        ("tiny", ["seed=3"], "data or seed overridden"),
        ("mine", [], "Got 'mine', expected one of the experiments in conf/: tiny."),
    ],
)
def test_other_data_lacks_a_version_with_a_reason(root, name, overrides, reason):
    assert dataset_version(name, settings_with(*overrides), root) == f"none: {reason}"


@pytest.mark.long
def test_a_dataset_of_changed_files_has_another_version(root):
    rows = [{"question": f"What is {n}+{n}?", "answer": str(n + n)} for n in range(20)]
    (root / "rows.json").write_text(json.dumps(rows))
    of_files = {"use": "agentfly_core.datasets.files:files", "train_file": "rows.json"}
    tiny = yaml.safe_load((root / "conf/tiny.yaml").read_text())
    data = of_files | dict.fromkeys(("train", "validation", "test"), 4)
    (root / "conf/rows.yaml").write_text(yaml.safe_dump(tiny | {"data": data}))
    first = dataset_version("rows", loading.read("rows").settings, root)
    (root / "rows.json").write_text(json.dumps(rows[::-1]))
    second = dataset_version("rows", loading.read("rows").settings, root)
    assert first != second == dataset_version("rows", loading.read("rows").settings, root)


@pytest.mark.long
def test_a_changed_raw_file_has_the_dataset_built_again(root):
    dataset_version("tiny", settings_with(), root)
    (root / "data/raw/more.jsonl").write_text('{"question": "What is 1+1?"}')
    changed = json.loads(Project(root).run("dvc", "status", "--json", "prepare"))
    assert changed == {"prepare": [{"changed deps": {"data/raw": "modified"}}]}


def test_dvc_is_not_called_outside_git_or_inside_dvc(root, monkeypatch):
    (root / ".git").rename(root / "git")
    assert dataset_version("tiny", settings_with(), root) == (
        "none: DVC needs a git repository (git init)"
    )
    monkeypatch.setenv("DVC_STAGE", "train")
    assert dataset_version("tiny", settings_with(), root) == (
        "none: DVC started this command, and versions the data itself"
    )


def test_a_dataset_in_reproduction_lacks_a_version(root):
    let_stages_sleep(root)
    somebody = Project(root).start("dvc", "repro")
    rwlock = root / ".dvc/tmp/rwlock"
    until(lambda: rwlock.exists() and "results/tiny/config.yaml" in rwlock.read_text(), somebody)
    assert dataset_version("tiny", settings_with(), root) == (
        "none: another DVC command is working on this dataset"
    )
    kill_tree(somebody)


def test_cancelling_ends_dvc_and_its_stage(root):
    let_stages_sleep(root)
    program = "from pathlib import Path\nfrom agentfly_core.config import loading\n"
    program += "from agentfly_core.runs import versioning\n"
    program += "versioning.dataset_version('tiny', loading.read('tiny').settings, Path.cwd())\n"
    cancelled = Project(root).start(sys.executable, "-c", program)
    until(lambda: any("sleep 600" in command(child) for child in children(cancelled)), cancelled)
    family = children(cancelled)
    cancelled.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in cancelled.communicate(timeout=LIMIT)[0]
    assert psutil.wait_procs(family, timeout=LIMIT)[1] == []


def let_stages_sleep(root: Path) -> None:
    file = root / "dvc.yaml"
    file.write_text(file.read_text().replace("PATH=.venv/bin:$PATH agentfly", "sleep 600 &&"))


@pytest.mark.long
def test_data_that_cannot_be_built_stops_with_the_reason(root):
    conf = yaml.safe_load((root / "conf/tiny.yaml").read_text())
    (root / "conf/tiny.yaml").write_text(
        yaml.safe_dump(conf | {"data": conf["data"] | {"operators": "/"}})
    )
    with pytest.raises(ValueError, match="Got the operators"):
        dataset_version("tiny", settings_with(), root)


def test_an_experiment_outside_the_project_is_refused(root):
    with pytest.raises(ValueError, match="Got 'quickstrat'"):
        pipeline("quickstrat", root)


def test_missing_dvc_parameters_are_named(root):
    (root / "params.yaml").unlink()
    with pytest.raises(ValueError, match=r"params\.yaml, .* in /"):
        pipeline("tiny", root)
