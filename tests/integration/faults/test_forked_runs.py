"""A run whose episodes fork ends with equal bytes wherever it was killed, with any workers."""

from pathlib import Path

import pytest

from agentfly_core.records.parquet import EPISODES, read_trajectories
from agentfly_core.records.trajectory import Trajectory
from tests.support.forking import FORKING
from tests.support.killed_commands import RUN, TRAIN, Lives, digests

AGENT = (*TRAIN, f"agent.use={FORKING}", "warm_start=null", "steps=2")
SETTING = (
    *TRAIN,
    "steps=2",
    "rollout.branching={total: 4, init: 2, alpha: 0.9}",
    "algorithm.credit=tree_hard",
)
RUNS = {"by an agent": AGENT, "by rollout.branching": SETTING}


@pytest.fixture(scope="module")
def forked(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The undisturbed runs."""
    folders = {}
    for name, words in RUNS.items():
        folders[name] = tmp_path_factory.mktemp("forked")
        end = lives.run(folders[name], *words)
        assert end.code == 0, end.printed
    return folders


def shards(folder: Path) -> list[list[Trajectory]]:
    return [
        read_trajectories(shard)
        for shard in (folder / RUN / "steps").glob(f"*/rollout-*/{EPISODES}")
    ]


def test_each_episode_of_an_agent_has_two_leaves(forked: dict[str, Path]) -> None:
    for played in shards(forked["by an agent"]):
        parents = [one.id for one in played if one.branch is None]
        assert sorted(one.branch.parent for one in played if one.branch) == sorted(parents)


def test_branching_plays_all_leaves_of_each_problem(forked: dict[str, Path]) -> None:
    steps = shards(forked["by rollout.branching"])
    for played in steps:
        chains = [(one.problem.id, one.chain) for one in played]
        problems = sorted({one.problem.id for one in played})
        assert chains == [(problem, chain) for problem in problems for chain in range(4)]
    assert sum(one.branch is not None for played in steps for one in played) >= 2


@pytest.mark.parametrize(
    "name", [pytest.param("by an agent", marks=pytest.mark.long), "by rollout.branching"]
)
def test_a_run_killed_amid_its_forks_has_equal_bytes(
    lives: Lives, forked: dict[str, Path], tmp_path: Path, name: str
) -> None:
    lives.survive(tmp_path, RUNS[name], ("rollout 1 3", "rollout 2 6"))
    assert digests(tmp_path) == digests(forked[name])


@pytest.mark.parametrize(
    "name", ["by an agent", pytest.param("by rollout.branching", marks=pytest.mark.long)]
)
def test_two_workers_give_equal_bytes_of_forks(
    lives: Lives, forked: dict[str, Path], tmp_path: Path, name: str
) -> None:
    end = lives.run(tmp_path, *RUNS[name], env={"AGENTFLY_WORKERS": "2"})
    assert end.code == 0, end.printed
    assert digests(tmp_path) == digests(forked[name])
