"""A killed run of several tasks continues, and ends with the bytes of an uninterrupted one."""

from pathlib import Path

import pytest

from tests.support.killed_commands import RUN, Lives, digests, ledger
from tests.support.project import ROOT

TRAIN = ("train", str(ROOT / "tests/integration/faults/mixture.yaml"), "--run", "demo")


@pytest.mark.long
def test_a_killed_mixture_ends_with_the_same_bytes(
    tmp_path: Path, lives: Lives, tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = tmp_path_factory.mktemp("mixture")
    end = lives.run(whole, *TRAIN)
    assert end.code == 0, end.printed
    moments = ("rollout 1 5", "update 1 1", f"publish {RUN}/steps/000002/scored")
    lives.survive(tmp_path, TRAIN, moments)
    assert digests(tmp_path) == digests(whole)
    played = ledger(tmp_path)
    assert played.equals(ledger(whole))
    of_steps = played.groupby("step")["task"].agg(list)
    assert of_steps.tolist() == [["products", "sums", "sums"]] * 2


@pytest.mark.long
def test_the_shipped_mixture_of_three_tasks_trains_two_steps(tmp_path: Path, lives: Lives) -> None:
    tasks = ("calculator", "office", "shop")
    few = {"train": 16, "validation": 0, "test": 14}
    sizes = [f"tasks.{task}.data.{split}={n}" for task in tasks for split, n in few.items()]
    small = ["warm_start.episodes=32", "warm_start.rounds=1", "rollout.problems=4"]
    conf = str(ROOT / "conf/mixture.yaml")
    words = ("train", conf, "--run", "demo", *sizes, *small, "rollout.group_size=2", "steps=2")
    end = lives.run(tmp_path, *words)
    assert end.code == 0, end.printed
    played = ledger(tmp_path)["task"].value_counts()
    assert played.to_dict() == {"office": 4, "calculator": 2, "shop": 2}
    assert [f"task {task}" in end.printed for task in tasks] == [True] * 3
