"""A run whose episodes fork ends with equal bytes wherever it was killed, with any workers."""

from pathlib import Path

import pytest

from agentfly_core.records.parquet import EPISODES, read_trajectories
from tests.support.forking import FORKING
from tests.support.killed_commands import RUN, TRAIN, Lives, digests

WORDS = (*TRAIN, f"agent.use={FORKING}", "warm_start=null", "steps=2")


@pytest.fixture(scope="module")
def forked(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run."""
    folder = tmp_path_factory.mktemp("forked")
    end = lives.run(folder, *WORDS)
    assert end.code == 0, end.printed
    return folder


def test_each_episode_of_a_run_has_two_leaves(forked: Path) -> None:
    for shard in (forked / RUN / "steps").glob(f"*/rollout-*/{EPISODES}"):
        played = read_trajectories(shard)
        parents = [one.id for one in played if one.branch is None]
        assert sorted(one.branch.parent for one in played if one.branch) == sorted(parents)


def test_a_run_killed_amid_its_forks_has_equal_bytes(
    lives: Lives, forked: Path, tmp_path: Path
) -> None:
    lives.survive(tmp_path, WORDS, ("rollout 1 3", "rollout 2 6"))
    assert digests(tmp_path) == digests(forked)


def test_two_workers_give_equal_bytes_of_forks(lives: Lives, forked: Path, tmp_path: Path) -> None:
    end = lives.run(tmp_path, *WORDS, env={"AGENTFLY_WORKERS": "2"})
    assert end.code == 0, end.printed
    assert digests(tmp_path) == digests(forked)
