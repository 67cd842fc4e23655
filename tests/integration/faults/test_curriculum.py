"""A killed run draws the problems of its curriculum in the order of an undisturbed one."""

import shutil
from pathlib import Path

import pytest

from tests.support.killed_commands import RUN, Lives, digests, ledger
from tests.support.project import ROOT

TRAIN = (
    "train",
    str(ROOT / "conf/mask-search.yaml"),
    "--run",
    "demo",
    *("data.train=96", "data.validation=2", "data.test=2"),
    *("warm_start.episodes=8", "warm_start.rounds=1"),
    *("rollout.problems=2", "rollout.group_size=2", "rollout.shard=2", "rollout.refills=1"),
    "steps=3",
)
MOMENTS = ("rollout 2 2", f"publish {RUN}/steps/000002/scored", "rollout 3 1")


@pytest.mark.long
def test_a_killed_curriculum_keeps_its_order(lives: Lives, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        shutil.copytree(ROOT / "data/ramp", folder / "data/ramp")
    end = lives.run(whole, *TRAIN)
    assert end.code == 0, end.printed
    lives.survive(killed, TRAIN, MOMENTS)
    assert digests(killed) == digests(whole)
    played = ledger(killed)
    assert played.equals(ledger(whole))
    assert {*played["kind"]} <= {"1", "2"}
