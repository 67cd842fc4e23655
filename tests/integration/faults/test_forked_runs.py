"""A run whose episodes fork ends with equal bytes wherever it was killed, with any workers."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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
BY_AN_AGENT = pytest.param("by an agent", marks=pytest.mark.long)


class Forked(NamedTuple):
    """An undisturbed run, and the words of its command."""

    folder: Path
    words: Sequence[str]


@pytest.fixture(scope="module")
def forked(
    request: pytest.FixtureRequest, lives: Lives, tmp_path_factory: pytest.TempPathFactory
) -> Forked:
    whole = Forked(tmp_path_factory.mktemp("forked"), RUNS[request.param])
    end = lives.run(whole.folder, *whole.words)
    assert end.code == 0, end.printed
    return whole


def forking(*names: object) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("forked", names, indirect=True)


def shards(folder: Path) -> list[list[Trajectory]]:
    return [
        read_trajectories(shard)
        for shard in (folder / RUN / "steps").glob(f"*/rollout-*/{EPISODES}")
    ]


@forking(BY_AN_AGENT)
def test_each_episode_of_an_agent_has_two_leaves(forked: Forked) -> None:
    for played in shards(forked.folder):
        parents = [one.id for one in played if one.branch is None]
        assert sorted(one.branch.parent for one in played if one.branch) == sorted(parents)


@pytest.mark.long
@forking("by rollout.branching")
def test_branching_plays_all_leaves_of_each_problem(forked: Forked) -> None:
    steps = shards(forked.folder)
    for played in steps:
        chains = [(one.problem.id, one.chain) for one in played]
        problems = sorted({one.problem.id for one in played})
        assert chains == [(problem, chain) for problem in problems for chain in range(4)]
    assert sum(one.branch is not None for played in steps for one in played) >= 2


@pytest.mark.long
@forking(BY_AN_AGENT, "by rollout.branching")
def test_a_run_killed_amid_its_forks_has_equal_bytes(
    lives: Lives, forked: Forked, tmp_path: Path
) -> None:
    lives.survive(tmp_path, forked.words, ("rollout 1 3", "rollout 2 6"))
    assert digests(tmp_path) == digests(forked.folder)


@pytest.mark.long
@forking(BY_AN_AGENT, "by rollout.branching")
def test_two_workers_give_equal_bytes_of_forks(
    lives: Lives, forked: Forked, tmp_path: Path
) -> None:
    end = lives.run(tmp_path, *forked.words, env={"AGENTFLY_WORKERS": "2"})
    assert end.code == 0, end.printed
    assert digests(tmp_path) == digests(forked.folder)
