import io
import json
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from agentfly_core.config import loading
from agentfly_core.config.site import Site
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.runs.listing import Listed, Unreadable, listed, view
from agentfly_core.runs.run import opened
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.lock import local_lock
from agentfly_core.store.store import Store
from agentfly_core.system.process import Owner
from tests.support.buckets import Bucket

TINY = """
model: nano:calculator
data: {use: "agentfly_core.datasets.arithmetic:arithmetic", train: 64, test: 16}
rewards: {"agentfly_core.rewards.exact:exact": 1.0}
steps: 2
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A project folder, the working directory, with one experiment and no runs."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    return Store.at(".", tmp_path / ".agentfly")


def start(store: Store, name: str, *overrides: str, file: str = "tiny", published: int = 0) -> None:
    """Start a run that ends after `published` steps."""
    read = loading.read(file, overrides)
    with opened(Experiment.of(read.name, read.settings, read.origin, Site(), store), name):
        for step in range(1, published + 1):
            with store.publish(
                ArtifactKey(f"runs/{name}/steps/{step:06d}/policy", "update", "key", {})
            ):
                pass


def single_entry(store: Store) -> Listed:
    (run,) = listed(store)
    assert isinstance(run, Listed)
    return run


def test_an_interrupted_run_is_listed_with_its_command(project: Store) -> None:
    start(project, "tiny-1", "steps=9", "update.learning_rate=1e-5", published=3)
    run = single_entry(project)
    assert (run.state, run.owner, run.step, run.steps) == ("stopped", "", 3, 9)
    assert run.command == "agentfly train tiny steps=9 update.learning_rate=1e-05 --run tiny-1"


def test_the_command_gives_exactly_the_settings_of_the_run(project: Store) -> None:
    overrides = [
        "rewards={agentfly_core.rewards.exact:exact: 2}",
        "agent.system='Be brief: yes'",
        "update.betas=[0.5, 0.25]",
        "update.weight_decay=1.0e-6",
    ]
    overrides += ["evaluate.goal='agentfly_core.rewards.exact:exact'"]
    start(project, "tiny-1", *overrides)
    words = shlex.split(single_entry(project).command)
    again = loading.read("tiny", [word for word in words[3:] if "=" in word])
    assert again.settings == loading.read("tiny", overrides).settings


def test_the_command_leaves_out_removed_settings(project: Store) -> None:
    kl = "algorithm: {kl: {use: loss, weight: 0.1}}"
    Path("conf/tiny.yaml").write_text(f"{TINY}\nadapter: {{rank: 4}}\n{kl}\n")
    start(project, "tiny-1", "adapter=null", "algorithm.kl=null")
    command = single_entry(project).command
    assert command == "agentfly train tiny adapter=null algorithm.kl=null --run tiny-1"


def test_an_edited_file_does_not_change_the_listed_command(project: Store) -> None:
    start(project, "tiny-1", "seed=4")
    Path("conf/tiny.yaml").write_text(TINY.replace("steps: 2", "steps: 5"))
    assert single_entry(project).command == "agentfly train tiny seed=4 steps=2 --run tiny-1"
    for unreadable in ("steps: [", "- a list", "model: nano:calculator"):
        Path("conf/tiny.yaml").write_text(unreadable)
        assert single_entry(project).command == "agentfly train tiny seed=4 --run tiny-1"
    Path("conf/tiny.yaml").unlink()
    assert single_entry(project).command == "agentfly train tiny seed=4 --run tiny-1"


def test_the_command_names_the_path_and_another_store(
    project: Store,
) -> None:
    Path("mine.yaml").write_text(TINY)
    elsewhere = Store.at("elsewhere", project.root / ".agentfly")
    start(elsewhere, "mine-1", file="mine.yaml")
    assert (
        single_entry(elsewhere).command
        == f"agentfly train mine.yaml --run mine-1 --store {project.root}/elsewhere"
    )


def test_an_active_run_names_its_owner(project: Store) -> None:
    start(project, "tiny-1")
    with local_lock(project.root / "runs" / "tiny-1"):
        run = single_entry(project)
    assert (run.state, run.owner) == ("running", str(Owner.current()))


@pytest.mark.parametrize("damaged", [b"", b"\0" * 90, b"\xff", b"[]", b'{"host": "no'])
def test_a_damaged_lock_file_hides_no_run(project: Store, damaged: bytes) -> None:
    for name in ("tiny-1", "tiny-2"):
        start(project, name)
    (project.root / "runs/tiny-1/lock.json").write_bytes(damaged)
    assert [(run.name, run.state) for run in listed(project)] == [
        ("tiny-1", "stopped"),
        ("tiny-2", "stopped"),
    ]


def test_a_run_on_s3_is_running_while_its_lock_is_renewed(project: Store) -> None:
    start(project, "tiny-1")
    bucket = Bucket({"runs/tiny-1/run.json": (project.root / "runs/tiny-1/run.json").read_text()})
    elsewhere = {"host": "node7", "pid": 4711, "started": 1763740000.25, "boot": "0c5d"}
    bucket["runs/tiny-1/lock.json"] = json.dumps(
        {"owner": elsewhere, "fence": 1, "released": False}
    )
    for seconds, state in ((30.0, "running"), (300.0, "stopped")):
        bucket.ages["runs/tiny-1/lock.json"] = seconds
        assert single_entry(Store(project.root, bucket)).state == state  # type: ignore[arg-type]


def test_a_finished_run_shows_success_until_it_gets_more_steps(project: Store) -> None:
    start(project, "tiny-1", published=2)
    project.write_json("runs/tiny-1/summary.json", {"steps": 2, "success_after": 0.912})
    run = single_entry(project)
    assert (run.state, run.success, run.command) == ("finished", 0.912, "agentfly show tiny-1")
    start(project, "tiny-1", "steps=4")
    assert single_entry(project).state == "stopped"


def test_a_finished_run_of_another_store_is_read_there(project: Store) -> None:
    elsewhere = Store.at("elsewhere", project.root / ".agentfly")
    start(elsewhere, "tiny-1")
    elsewhere.write_json("runs/tiny-1/summary.json", {"steps": 2, "success_after": 0.912})
    assert (
        single_entry(elsewhere).command == f"agentfly show tiny-1 --store {project.root}/elsewhere"
    )
    Path("conf/site").mkdir()
    Path("conf/site/local.yaml").write_text("store: elsewhere\n")
    assert single_entry(elsewhere).command == "agentfly show tiny-1"


def test_the_list_is_complete_in_a_narrow_terminal(project: Store) -> None:
    start(project, "tiny-1", "agent.system=" + "x" * 90, published=1)
    console = Console(file=io.StringIO(), width=60)
    console.print(view(listed(project), project), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    first, second = console.file.getvalue().splitlines()
    assert first.split() == ["tiny-1", "stopped", "step", "1/2"]
    assert second == f"  agentfly train tiny agent.system={'x' * 90} --run tiny-1"


def test_an_empty_store_shows_how_to_start(project: Store) -> None:
    """With the name of an experiment of the project."""
    assert str(view([], project)).endswith("agentfly train tiny")


def test_a_damaged_record_hides_no_other_run_and_has_a_remedy(project: Store) -> None:
    start(project, "tiny-1")
    start(project, "tiny-2", published=1)
    path = project.root / "runs/tiny-1/run.json"
    path.write_text(path.read_text().replace('"seed"', '"sead"'))
    damaged, whole = listed(project)
    assert isinstance(damaged, Unreadable)
    assert damaged.fault.startswith(f"{path} is damaged: checksum mismatch.")
    assert "remove it" in damaged.fault
    assert isinstance(whole, Listed)
    assert whole.step == 1
    console = Console(file=io.StringIO(), width=60)
    console.print(view(listed(project), project), soft_wrap=True)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue().splitlines()
    assert [line.split()[0] for line in shown] == ["tiny-1", str(path), "tiny-2", "agentfly"]
